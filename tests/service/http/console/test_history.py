"""The history of the last minutes: which samples it keeps, for how long, and the points of its plots."""

import pytest

from tableside.http.console.counts import Counts, Reading
from tableside.http.console.history import NOW_S, ROWS_MAX, SAMPLES_MAX, SPAN_S, History


def reading(**tables: float) -> Reading:
    """Return a reading with this number of reads for each table."""
    found = Reading({}, Counts(), {})
    for name, reads in tables.items():
        row = found.tables[name] = Counts()
        row["reads"] = reads
        found.total["reads"] = found.total.get("reads", 0.0) + reads
    return found


def filled(samples: int, every_s: float = 2.0) -> History:
    history = History()
    for number in range(samples):
        history.add(number * every_s, reading(t=number * 10.0))
    return history


def test_the_current_values_cover_the_last_seconds() -> None:
    history = filled(100)
    now = history.now("t")
    assert now is not None
    assert now.seconds == NOW_S + 1  # samples are two seconds apart
    assert now.per_s("reads") == 5
    assert filled(1).now("t") is None
    assert (start := filled(3).now("t")) is not None
    assert start.seconds == 4


def test_a_new_table_starts_at_zero() -> None:
    history = History()
    history.add(0.0, reading())
    history.add(2.0, reading(t=8.0))
    assert (now := history.now("t")) is not None
    assert now.per_s("reads") == 4
    assert (total := history.now()) is not None
    assert total.per_s("reads") == 4


def test_samples_older_than_ten_minutes_are_removed() -> None:
    history = History()
    for at in range(0, 3000, 10):
        history.add(at, reading(t=1.0))
    assert len(history) == SPAN_S / 10 + 1


def test_the_number_of_samples_is_limited() -> None:
    assert len(filled(1000, every_s=0.1)) == SAMPLES_MAX


def test_a_thousand_tables_take_no_more_memory_than_a_few() -> None:
    history = History()
    for at in range(200):
        history.add(at, reading(**{f"t{number}": float(at) for number in range(1000)}))
    assert len(history) == ROWS_MAX / 1000


def test_an_idle_table_takes_no_memory() -> None:
    history = History()
    for at in range(10):
        history.add(at, reading(idle=1.0, busy=float(at)))
    rows = [(sample.row("idle"), sample.row("busy")) for sample in history._samples]
    assert len({id(idle) for idle, _ in rows}) == 1
    assert len({id(busy) for _, busy in rows}) == 10


def test_steps_are_aligned_to_the_clock_so_that_plots_are_stable() -> None:
    history = filled(50)
    before = {round(98 - ago_s, 6): change.per_s("reads") for ago_s, change in history.changes("t", step_s=10)}
    history.add(100.0, reading(t=500.0))
    after = {round(100 - ago_s, 6): change.per_s("reads") for ago_s, change in history.changes("t", step_s=10)}
    assert before.items() <= after.items()
    assert len(after) == len(before) + 1


@pytest.mark.parametrize("samples", [0, 1])
def test_the_first_plot_is_empty(samples: int) -> None:
    assert list(filled(samples).changes("t", step_s=10)) == []
