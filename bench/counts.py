"""Counters for measurements: CPU time of all processes, operations, store calls and Redis commands."""

from collections.abc import Iterator

import httpx
import psutil
import redis
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_OPERATIONS = "tableside_operations_total"
_CALLS = "tableside_store_call_duration_seconds_count"
_NOT_WORK = {"client|setinfo", "config|resetstat", "info", "hello", "ping", "script|load"}


def cpu_s() -> float:
    """Return the CPU seconds of this process and its descendants so far."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(_seconds(process) for process in processes)


def updates(url: str, table: str) -> int:
    """Return the number of updates that the service has received for a table."""
    return _sum(url, _OPERATIONS, table, operation="update")


def store_calls(url: str, table: str) -> int:
    """Return the number of store calls that the service has made for a table, without scans."""
    return _sum(url, _CALLS, table, call="apply")


def commands(client: "redis.Redis") -> dict[str, int]:
    """Return the number of Redis commands by kind since the statistics were reset, including commands in scripts."""
    found = client.info("commandstats")
    counts = {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items()}
    return {name: count for name, count in sorted(counts.items()) if name not in _NOT_WORK}


def _sum(url: str, name: str, table: str, **labels: str) -> int:
    wanted = {"table": table, **labels}.items()
    return int(sum(sample.value for sample in _samples(url) if sample.name == name and wanted <= sample.labels.items()))


def _samples(url: str) -> Iterator[Sample]:
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
