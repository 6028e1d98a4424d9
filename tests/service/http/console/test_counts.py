"""Changes between two readings as rates, shares and quantiles."""

import math

import pytest

from tableside.http.console.counts import FAILURES, Change, Counts, quantile


def counts(**numbers: float) -> Counts:
    row = Counts()
    for name, number in numbers.items():
        row.add(name.replace("_", " ") if name.startswith(("cache", "le")) else name, number)
    return row


def change(before: Counts, after: Counts, seconds: float = 10.0) -> Change:
    return Change(seconds, before, after)


def test_rates_use_the_increase_within_the_interval() -> None:
    now = change(counts(reads=100, writes=5), counts(reads=150, writes=10))
    assert now.per_s("reads") == 5
    assert now.per_s("reads", "writes") == 5.5
    assert now.operations == 55


def test_a_decreased_counter_was_reset() -> None:
    assert change(counts(reads=100), counts(reads=7))["reads"] == 0


def test_the_failed_share_excludes_errors_of_callers() -> None:
    before = counts(reads=10, store_unavailable=3)
    after = counts(reads=90, writes=20, store_unavailable=5, throttled=1, refused=50, absent=7)
    assert change(before, after).failed_share == 3 / 100
    assert change(after, after).failed_share is None
    assert "refused" not in FAILURES


def test_the_hit_share_is_relative_to_gets_through_a_cache() -> None:
    after = counts(cache_hit=6, cache_miss=1, cache_coalesced=2, cache_bypassed=1)
    assert change(Counts(), after).hit_share == 0.6
    assert change(Counts(), Counts()).hit_share is None


def test_metrics_that_no_page_shows_are_not_counted() -> None:
    row = Counts()
    row.add("something new", 1)
    assert row == Counts()


def test_latency_uses_the_observations_within_the_interval() -> None:
    before, after = Counts(), Counts()
    for bound in (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf):
        before.add(f"le {bound}", 1000)  # from before the interval
        after.add(f"le {bound}", 1000 + (100 if bound >= 0.1 else 0))
    assert change(before, after).latency_s(0.5) == pytest.approx(0.075)
    assert change(after, after).latency_s(0.5) is None


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.25, 0.5), (0.5, 1.0), (0.75, 1.5), (0.9, 1.8), (1.0, 2.0)],
)
def test_a_quantile_lies_evenly_within_its_bucket(share: float, expected: float) -> None:
    assert quantile(share, [(1.0, 10.0), (2.0, 20.0), (math.inf, 20.0)]) == pytest.approx(expected)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile(0.99, [(1.0, 5.0), (2.0, 5.0), (math.inf, 10.0)]) == 2.0
    assert quantile(0.99, [(1.0, 0.0), (math.inf, 0.0)]) is None


def test_empty_buckets_are_skipped() -> None:
    assert quantile(0.5, [(1.0, 0.0), (2.0, 0.0), (4.0, 8.0), (math.inf, 8.0)]) == 3.0
