"""The text of numbers and table health on pages."""

import math

import pytest

from tableside.core.errors import StoreUnavailable
from tableside.http.console import numbers
from tableside.http.console.console import BOUNDS_S, Change, Counts
from tableside.http.console.pages import load_shedding, table_health


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, numbers.NONE),
        (0, "0"),
        (0.254, "0.25"),
        (7.5, "7.5"),
        (42.04, "42"),
        (430.4, "430"),
        (999.4, "999"),
        (999.9, "1k"),
        (12_345, "12.3k"),
        (2_000_000, "2M"),
    ],
)
def test_counts(number: float | None, expected: str) -> None:
    assert numbers.count(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, numbers.NONE),
        (0, "0 s"),
        (0.00085, "850 µs"),
        (0.0009999, "1 ms"),
        (0.00125, "1.25 ms"),
        (0.9999, "1 s"),
        (3.5, "3.5 s"),
        (600, "10 min"),
        (86400, "24 h"),
        (864000, "10 days"),
    ],
)
def test_times(number: float | None, expected: str) -> None:
    assert numbers.seconds(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, numbers.NONE),
        (0, "0 %"),
        (0.0004, "<0.1 %"),
        (0.025, "2.5 %"),
        (0.02, "2 %"),
        (0.984, "98 %"),
        (1, "100 %"),
    ],
)
def test_shares(number: float | None, expected: str) -> None:
    assert numbers.share(number) == expected


def happened(operations: float, slow_s: float = 0.001, **failed: float) -> Change:
    after = Counts()
    after["reads"] = operations
    for code, count in failed.items():
        after[code] = count
    for bound in BOUNDS_S:
        after[f"le {bound}"] = operations if bound >= slow_s or bound == math.inf else 0
    return Change(10.0, Counts(), after)


@pytest.mark.parametrize(
    ("change", "level", "label"),
    [
        (None, "ok", "idle"),
        (happened(0), "ok", "idle"),
        (happened(1000), "ok", "OK"),
        (happened(10_000, throttled=9), "ok", "OK"),
        (happened(1000, throttled=2, contended=1), "warning", "errors"),
        (happened(1000, store_unavailable=50), "critical", "high error rate"),
        (happened(1000, refused=500), "ok", "OK"),
        (happened(1000, slow_s=1), "ok", "OK"),
        (happened(1000, slow_s=5), "warning", "high latency"),
        (happened(1000, slow_s=10), "warning", "high latency"),
    ],
)
def test_health_follows_the_recent_operations(change: Change | None, level: str, label: str) -> None:
    found = table_health(change, None, 10.0)
    assert (found.level, found.label) == (level, label)


def test_health_has_a_reason() -> None:
    assert table_health(happened(1000, throttled=60, contended=1), None, 10).reason == (
        "6.1 % of operations failed; most frequent error: throttled"
    )
    assert table_health(happened(1000, slow_s=10), None, 10).reason == "p99 latency is 9.95 s, the deadline is 10 s"
    lost = table_health(happened(1000), StoreUnavailable("no answer within 2 s"), 10)
    assert (lost.level, lost.label, lost.reason) == ("critical", "store unreachable", "no answer within 2 s")


def test_shed_requests_are_a_warning() -> None:
    assert load_shedding(None) is None
    assert load_shedding(happened(1000)) is None
    found = load_shedding(happened(1000, shed=25))
    assert found is not None
    assert (found.level, found.label) == ("warning", "load shedding")
    assert found.reason.startswith("2.5/s requests rejected with 503")
