"""Input rows, the same for all variants: one Parquet file for each micro-batch, and their totals."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

BUILDING_SHARE = 5
"""One in this many micro-batches creates keys. The others change existing keys."""

CHANGED_PERCENT = (2, 4, 6, 8, 10)
"""The percentages of the keys that micro-batches change, in turn."""

MORE = 4
MORE_ROWS = 100
"""The number of rows in each of the `MORE` micro-batches for the restarted query."""

WARM_ROWS = 1_000
SEED = 20131


@dataclass(frozen=True)
class Totals:
    """The expected number of keys in the state and the expected sums of their values."""

    keys: int
    rows: int
    amounts: int
    last: int


@dataclass(frozen=True)
class Inputs:
    """One file per micro-batch: for the measured query, for the restarted query, and for the warm-up."""

    measured: list[Path]
    more: list[Path]
    warm: list[Path]
    building: int
    rows: int
    payload: bool
    totals: Totals


def write(folder: Path, keys: int, batches: int, payload_bytes: int = 0) -> Inputs:
    """Write files of rows: the first micro-batches contain every key once, the others some of the keys again.

    Every row has a different text of `payload_bytes` bytes.
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
    """Put files into a query's input folder with increasing times, so that the query reads them in order."""
    folder.mkdir(exist_ok=True)
    for file in files:
        os.link(file, folder / file.name)


def _chosen(chance: np.random.Generator, keys: int, batches: int, building: int) -> Iterator[Any]:
    """Yield the keys of each micro-batch, in random order without duplicates."""
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
