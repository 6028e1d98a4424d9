"""The text of numbers, plots and verdicts on pages."""

import math
import re

import pytest

from tableside.core.errors import StoreUnavailable
from tableside.http.console import numbers, plots
from tableside.http.console.counts import BOUNDS_S, Change, Counts
from tableside.http.console.verdicts import verdict

MINUS = "\N{MINUS SIGN}"


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


def test_sizes() -> None:
    assert [numbers.size_bytes(size) for size in (0, 1023, 3482, 2**24)] == ["0 B", "1023 B", "3.4 KiB", "16 MiB"]


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 1), (1.01, 2), (2.2, 2.5), (30, 50), (0.00071, 0.001), (999, 1000), (1000, 1000)]
)
def test_an_axis_ends_at_a_round_number(value: float, expected: float) -> None:
    assert plots.round_up(value) == pytest.approx(expected)


def test_a_line_goes_where_its_points_are_and_breaks_where_there_are_none() -> None:
    drawn = plots.plot("t", [("a", "first", [(600, 0), (300, 50), (200, None), (0, 100)], 100)], numbers.count)
    moves = re.findall(r"([ML])([\d.]+) ([\d.]+)", drawn.lines[0].path)
    right, bottom = plots.WIDTH - plots.RIGHT, plots.HEIGHT - plots.BOTTOM
    assert moves == [
        ("M", f"{plots.LEFT:.1f}", f"{bottom:.1f}"),
        ("L", f"{(plots.LEFT + right) / 2:.1f}", f"{(plots.TOP + bottom) / 2:.1f}"),
        ("M", f"{right:.1f}", f"{plots.TOP:.1f}"),
    ]
    assert [mark.text for mark in drawn.rows] == ["0", "50", "100"]
    assert [mark.text for mark in drawn.columns] == [f"{MINUS}10 min", f"{MINUS}5 min", "now"]
    assert not drawn.empty


def test_a_plot_of_nothing_says_so() -> None:
    drawn = plots.plot("t", [("a", "first", [(0, None)], None)], numbers.share, top_min=1, top_max=1)
    assert drawn.empty
    assert [mark.text for mark in drawn.rows] == ["0", "50 %", "100 %"]
    assert drawn.lines[0].now == numbers.NONE


def happened(operations: float, slow_s: float = 0.001, **failed: float) -> Change:
    after = Counts()
    after.add("reads", operations)
    for code, count in failed.items():
        after.add(code, count)
    for bound in BOUNDS_S:
        after.add(f"le {bound}", operations if bound >= slow_s or bound == math.inf else 0)
    return Change(10.0, Counts(), after)


@pytest.mark.parametrize(
    ("change", "level", "word"),
    [
        (None, "well", "idle"),
        (happened(0), "well", "idle"),
        (happened(1000), "well", "well"),
        (happened(10_000, throttled=9), "well", "well"),
        (happened(1000, throttled=2, contended=1), "strained", "some fail"),
        (happened(1000, store_unavailable=50), "ill", "failing"),
        (happened(1000, refused=500), "well", "well"),
        (happened(1000, slow_s=10), "strained", "slow"),
    ],
)
def test_a_table_is_as_well_as_what_happened_lately(change: Change | None, level: str, word: str) -> None:
    found = verdict(change, None, 10.0)
    assert (found.level, found.word) == (level, word)


def test_a_verdict_says_why() -> None:
    assert verdict(happened(1000, throttled=60, contended=1), None, 10).why == (
        "6.1 % of the operations failed, most of them throttled"
    )
    assert verdict(happened(1000, slow_s=10), None, 10).why == "one in a hundred takes 9.95 s, of 10 s that it may"
    lost = verdict(happened(1000), StoreUnavailable("no answer within 2 s"), 10)
    assert (lost.level, lost.word, lost.why) == ("ill", "store unreachable", "no answer within 2 s")
