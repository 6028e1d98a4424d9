"""Batch get of 1,000 keys: the service in JSON and Arrow, memory and RocksDB, against rocksdict called directly."""

import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Self

from examples.demo.service import running
from rocksdict import Options, Rdict, WriteBatch

from . import records
from .load import Request, requests_per_second, send_all
from .report import Result, group

RECORDS = 100_000
BATCH = 1000
TARGETS = {"RocksDB, Arrow": 0.35, "RocksDB, JSON": 0.2}

MEMORY = f"stores: {{m: {{kind: memory}}}}\ntables: {{{records.TABLE}: {{store: m}}}}\n"


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure every way in turn, several times over, and return the medians in records per second."""
    keys = [records.key(index) for index in range(RECORDS)]
    random.Random(1).shuffle(keys)
    batches = [keys[start : start + BATCH] for start in range(0, RECORDS, BATCH)]
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for store in ("memory", "RocksDB"):
            _measure_service(Path(folder) / store, store, batches, seconds, rounds, rates)
    return group("batch get of 1,000", "records", [(way, median(rate)) for way, rate in rates.items()], TARGETS)


def _measure_service(
    folder: Path, store: str, batches: list[list[str]], seconds: float, rounds: int, rates: dict[str, list[float]]
) -> None:
    folder.mkdir()
    config = folder / "memory.yaml"
    config.write_text(MEMORY)
    with _Direct(folder / "direct") as direct, running(folder, config=config if store == "memory" else None) as service:
        send_all(service.url, list(records.puts(RECORDS)))
        forms = {
            "Arrow": [records.gets_as_arrow(batch) for batch in batches],
            "JSON": [records.gets_as_json(batch) for batch in batches],
        }
        for _ in range(rounds):
            rates.setdefault("rocksdict, no service", []).append(direct.records_per_second(batches, seconds))
            for form, requests in forms.items():
                rates.setdefault(f"{store}, {form}", []).append(_rate(service.url, requests, seconds))


def _rate(url: str, requests: list[Request], seconds: float) -> float:
    return BATCH * requests_per_second(url, requests, connections=2, seconds=seconds)


class _Direct:
    """The same records in a database in this process, read with the same call as in the service."""

    def __init__(self, path: Path) -> None:
        self._database = Rdict(str(path), Options(raw_mode=True))
        batch = WriteBatch(raw_mode=True)
        for index in range(RECORDS):
            batch.put(records.key(index).encode(), records.value(index))
        self._database.write(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def records_per_second(self, batches: list[list[str]], seconds: float) -> float:
        encoded = [[key.encode() for key in batch] for batch in batches]
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            self._database.get(encoded[count % len(encoded)])  # type: ignore[arg-type]  # the stub expects a list of Any, not of bytes
            count += 1
        return BATCH * count / (time.perf_counter() - started)
