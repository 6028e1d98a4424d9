"""Rows for a query, the same for every way: files of Parquet, one for each micro-batch, and what they add up to."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

BUILDING_SHARE = 5
"""One micro-batch in so many builds keys; the others change them."""

CHANGED_PERCENT = (2, 4, 6, 8, 10)
"""How many of the keys a micro-batch changes, in turn."""

MORE = 4
MORE_ROWS = 100
"""What is left for when a query has begun anew: so many micro-batches of so many rows."""

WARM_ROWS = 1_000
SEED = 20131


@dataclass(frozen=True)
class Totals:
    """What the state has to hold: how many keys, and the sums of what is kept of them."""

    keys: int
    rows: int
    amounts: int
    last: int


@dataclass(frozen=True)
class Inputs:
    """Files by micro-batch: those that are measured, those for a query that has begun anew, those to warm up with."""

    measured: list[Path]
    more: list[Path]
    warm: list[Path]
    building: int
    rows: int
    payload: bool
    totals: Totals


def write(folder: Path, keys: int, batches: int, payload_bytes: int = 0) -> Inputs:
    """Write files of rows: the first micro-batches bring every key once, the others bring some of them again.

    Every row has a text of so many bytes, of which any two are different.
    """
    folder.mkdir()
    chance = np.random.default_rng(SEED)
    building = max(1, batches // BUILDING_SHARE)
    counts, amounts, last = (np.zeros(keys, np.int64) for _ in range(3))
    files = []
    for index, chosen in enumerate(_chosen(chance, keys, batches, building)):
        amount = chance.integers(1, 1_000, len(chosen))
        files.append(
            _write(
                folder / f"{index:05d}.parquet", chosen, amount, index, _payloads(chance, len(chosen), payload_bytes)
            )
        )
        counts[chosen] += 1
        amounts[chosen] += amount
        last[chosen] = index
    warm = [
        _write(
            folder / f"warm-{index}.parquet",
            np.arange(WARM_ROWS),
            np.ones(WARM_ROWS, np.int64),
            index,
            ["warm"] * WARM_ROWS,
        )
        for index in range(2)
    ]
    totals = Totals(keys, int(counts.sum()), int(amounts.sum()), int(last.sum()))
    rows = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files[:batches])
    return Inputs(files[:batches], files[batches:], warm, building, rows, payload_bytes > 0, totals)


def offer(files: list[Path], folder: Path) -> None:
    """Put files where a query reads them; each is newer than the one before, so that they are read in order."""
    folder.mkdir(exist_ok=True)
    for file in files:
        os.link(file, folder / file.name)


def _chosen(chance: np.random.Generator, keys: int, batches: int, building: int) -> Iterator[Any]:
    """Yield the keys of each micro-batch, in no order and none twice."""
    yield from np.array_split(chance.permutation(keys), building)
    for index in range(batches - building):
        share = CHANGED_PERCENT[index % len(CHANGED_PERCENT)]
        yield chance.choice(keys, max(1, keys * share // 100), replace=False)
    for _ in range(MORE):
        yield chance.choice(keys, min(keys, MORE_ROWS), replace=False)


def _payloads(chance: np.random.Generator, count: int, size: int) -> list[str]:
    text = chance.bytes(count * size // 2 + 1).hex()
    return [text[start : start + size] for start in range(0, count * size, size)] if size else [""] * count


def _write(file: Path, keys: Any, amounts: Any, index: int, payloads: list[str]) -> Path:
    names = [f"user-{key:08d}" for key in keys.tolist()]
    columns = {"user": names, "amount": amounts, "batch": [index] * len(names), "payload": payloads}
    pyarrow.parquet.write_table(pa.table(columns), file, use_dictionary=False)
    written_s = 1_700_000_000 + index
    os.utime(file, (written_s, written_s))
    return file
