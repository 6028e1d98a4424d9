"""The text of numbers and table health on pages."""

import math

import pytest

from tableside.core.errors import StoreUnavailable
from tableside.http.console import numbers
from tableside.http.console.console import BOUNDS_S, Change, Counts
from tableside.http.console.pages import load_shedding, table_health

NONE = numbers.NONE
COUNTS = {None: NONE, 0: "0", 0.254: "0.25", 7.5: "7.5", 42.04: "42", 999.4: "999", 999.9: "1k", 12_345: "12.3k"}
TIMES = {
    None: NONE,
    0: "0 s",
    0.00085: "850 µs",
    0.0009999: "1 ms",
    0.00125: "1.25 ms",
    600: "10 min",
    864000: "10 days",
}
SHARES = {None: NONE, 0: "0 %", 0.0004: "<0.1 %", 0.025: "2.5 %", 0.984: "98 %", 1: "100 %"}


def test_numbers_have_few_digits_and_a_unit() -> None:
    for write, expected in ((numbers.count, COUNTS), (numbers.seconds, TIMES), (numbers.share, SHARES)):
        assert {number: write(number) for number in expected} == expected


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
