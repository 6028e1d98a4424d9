"""Measure a variant of applying updates: its rate, its counters, and the contents of the table."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import httpx
import psutil
import redis
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Counted
from pyspark.sql import DataFrame

from tableside_client import Client

from . import flight_updates
from .flight_updates import Updates, Values
from .turns import hand_over
from .update_ways import Write

WARM = "warm"
_OPERATIONS = "tableside_operations_total"
_CALLS = "tableside_store_call_duration_seconds_count"
_NOT_WORK = {"client|setinfo", "config|resetstat", "info", "hello", "ping", "script|load"}


@dataclass(frozen=True)
class Sample:
    """One measurement. Operations and store calls are counted by the service, commands by Redis."""

    per_second: float
    per_cpu_second: float
    operations: int
    store_calls: int
    commands: dict[str, int]

    def counts(self) -> dict[str, int]:
        """Return the counters by name."""
        commands = {f"redis {name}": count for name, count in self.commands.items()}
        return {"operations": self.operations, "store calls": self.store_calls, **commands}


@dataclass(frozen=True)
class Way:
    """A variant of applying updates, through the service's `store`, or directly to Redis if `store` is empty.

    A variant without `applies` does not apply them and shows the cost of the rest of a micro-batch.
    """

    name: str
    store: str
    write: Write
    applies: bool = True
    samples: list[Sample] = field(default_factory=list)

    def table(self, turn: object) -> str:
        """Return the name of the table that only this variant writes, and only in this round."""
        return f"{re.sub('[^a-z]+', '-', self.name.lower())}-{turn}"

    def median(self, name: str) -> float:
        """Return the median of an attribute of the samples."""
        return float(median(getattr(sample, name) for sample in self.samples))


@dataclass(frozen=True)
class Measured:
    """Frames of updates, the same for all variants, and the URLs of the service and Redis."""

    updates: Updates
    frames: Sequence[DataFrame]
    url: str
    redis_url: str

    def warm(self, way: Way) -> None:
        """Write the first micro-batch, to warm up everything that starts lazily."""
        way.write(self.frames[0], way.table(WARM), 0)

    def measure(self, way: Way, turn: int) -> None:
        """Write all micro-batches in order. Raise `Different` if the table does not have the expected records."""
        table = way.table(turn)
        with redis.Redis.from_url(self.redis_url) as client:
            client.config_resetstat()
            began_s, cpu_began_s = time.perf_counter(), _cpu_s()
            for micro_batch, frame in enumerate(self.frames):
                way.write(frame, table, micro_batch)
            seconds, cpu_s = time.perf_counter() - began_s, _cpu_s() - cpu_began_s
            commands = _commands(client)
        flight_updates.check(self.updates.expected if way.applies else {}, self._values(way, table))
        operations, calls = _updates(self.url, table), _store_calls(self.url, table)
        rows = self.updates.rows
        way.samples.append(Sample(rows / seconds, rows / cpu_s, operations, calls, commands))
        hand_over()

    def _values(self, way: Way, table: str) -> Values:
        return _of_service(self.url, table) if way.store else _of_redis(self.redis_url, table)


def _of_service(url: str, table: str) -> Values:
    with Client(url) as client:
        pages = [page.select(["key", "value"]).to_pylist() for page in client.arrow_table(table).scan()]
    return {row["key"]: json.loads(row["value"]) for page in pages for row in page}


def _of_redis(url: str, table: str) -> Values:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        names = list(client.scan_iter(match=f"{table}:*", count=1_000))
        texts = client.mget(names) if names else []
    return {name.removeprefix(f"{table}:"): json.loads(text) for name, text in zip(names, texts, strict=True)}


def _cpu_s() -> float:
    """Return the CPU seconds of this process and its descendants so far."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(_seconds(process) for process in processes)


def _updates(url: str, table: str) -> int:
    """Return the number of updates that the service has received for a table."""
    return _sum(url, _OPERATIONS, table, operation="update")


def _store_calls(url: str, table: str) -> int:
    """Return the number of store calls that the service has made for a table, without scans."""
    return _sum(url, _CALLS, table, call="apply")


def _commands(client: "redis.Redis") -> dict[str, int]:
    """Return the number of Redis commands by kind since the statistics were reset, including commands in scripts."""
    found = client.info("commandstats")
    counts = {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items()}
    return {name: count for name, count in sorted(counts.items()) if name not in _NOT_WORK}


def _sum(url: str, name: str, table: str, **labels: str) -> int:
    wanted = {"table": table, **labels}.items()
    return int(sum(sample.value for sample in _samples(url) if sample.name == name and wanted <= sample.labels.items()))


def _samples(url: str) -> Iterator[Counted]:
    text = httpx.get(f"{url}/metrics", trust_env=False).raise_for_status().text
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and of the children that it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
