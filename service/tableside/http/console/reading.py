"""Reads the counters of each table from the service's metrics."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from prometheus_client import Metric

from .counts import FAILURES, REFUSED, SHED, SUCCESSES, Counts, bucket

Labels = Mapping[str, str]

_KNOWN = frozenset((*SUCCESSES, *FAILURES))
_WRITES = frozenset({"put", "update", "delete"})


class Reading(msgspec.Struct, frozen=True):
    """The counters of each table and of all tables together, and the gauges of requests in flight."""

    tables: dict[str, Counts]
    total: Counts
    in_flight: dict[str, float]


def read(families: Iterable[Metric]) -> Reading:
    """Read the metrics. Ignore metrics that no page shows."""
    reading = Reading({}, Counts(), {})
    for family in families:
        if family.name == "tableside_in_flight":
            reading.in_flight.update({sample.labels["what"]: sample.value for sample in family.samples})
        elif family.name == "tableside_shed":
            reading.total.add(SHED, sum(one.value for one in family.samples if one.name.endswith("_total")))
        elif family.name in FAMILIES:
            _add(family, reading)
    return reading


def _add(family: Metric, reading: Reading) -> None:
    for sample in family.samples:
        if (names := _NAMES.get(sample.name)) is None:
            continue
        table = sample.labels["table"]
        if (row := reading.tables.get(table)) is None:
            row = reading.tables[table] = Counts()
        for name in names(sample.labels):
            row.add(name, sample.value)
            reading.total.add(name, sample.value)


def _operation(labels: Labels) -> Sequence[str]:
    outcome = labels["outcome"]
    return (
        "writes" if labels["operation"] in _WRITES else "reads",
        outcome if outcome in _KNOWN else REFUSED,
    )


def _call(labels: Labels) -> Sequence[str]:
    return ("calls",) if labels["outcome"] == "ok" else ("calls", "calls failed")


def _always(name: str) -> Callable[[Labels], Sequence[str]]:
    names = (name,)
    return lambda labels: names


_NAMES: Mapping[str, Callable[[Labels], Sequence[str]]] = {
    "tableside_operations_total": _operation,
    "tableside_operation_duration_seconds_bucket": lambda labels: (bucket(labels["le"]),),
    "tableside_cache_gets_total": lambda labels: (f"cache {labels['outcome']}",),
    "tableside_store_call_duration_seconds_count": _call,
    "tableside_store_call_duration_seconds_sum": _always("calls seconds"),
    "tableside_rate_limit_throttled_total": lambda labels: (f"{labels['direction']} limit",),
    "tableside_caller_limit_throttled_total": lambda labels: (f"{labels['direction']} limit",),
    "tableside_retries_total": _always("retries"),
    "tableside_retries_given_up_total": _always("given up"),
    "tableside_bulkhead_calls_total": lambda labels: ("waited" if labels["outcome"] == "waited" else "crowded out",),
    "tableside_attempt_timeouts_total": _always("timeouts"),
}
"""By sample name, a function from the sample's labels to the counters that it increases."""

FAMILIES = frozenset(
    name.removesuffix("_total").removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in _NAMES
)
