"""The defaults of retries outlast a restart of the service. The time spent waiting is measured and logged."""

import logging
import random

import pytest

from tableside_client.retries import DEFAULT_RETRIES, REPORT_INTERVAL_S, Retries, RetryBudget, Waits

PAUSE_MAX_S = 3.0
"""How long an idle client may take to notice that the service has restarted."""


class Clock:
    """A time that passes only while something waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def pauses(retries: Retries, seed: int) -> list[float]:
    """Return the pauses of a request that always fails."""
    clock, dice = Clock(), random.Random(seed)
    budget = RetryBudget(retries, clock, dice.random)
    found: list[float] = []
    while (pause_s := budget.next_pause_s(None)) is not None:
        clock.now_s += pause_s
        found.append(pause_s)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_defaults_retry_for_two_minutes_with_short_pauses(seed: int) -> None:
    found = pauses(DEFAULT_RETRIES, seed)
    assert 120 - PAUSE_MAX_S < sum(found) <= 120
    assert max(found) <= PAUSE_MAX_S


def test_attempts_are_limited_only_if_the_caller_limits_them() -> None:
    assert len(pauses(Retries(attempts_max=3), 1)) == 2
    assert len(pauses(Retries(first_s=0.001, longest_s=0.001, total_s=3), 1)) > 2_000


def test_concurrent_pauses_count_once() -> None:
    clock = Clock()
    waits = Waits(clock)
    with waits.waiting("throttled"), waits.waiting("throttled"):
        clock.now_s = 4.0
        assert waits.total_s == 4.0
    clock.now_s = 9.0
    assert waits.total_s == 4.0


def test_long_waits_are_logged_with_their_reason_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = Clock()
    waits = Waits(clock)
    for _ in range(7):
        with waits.waiting("service_unreachable: refused"):
            clock.now_s += REPORT_INTERVAL_S / 2
    lines = [record.getMessage() for record in caplog.records]
    expected = [f"waited {times * REPORT_INTERVAL_S:.1f} s for retries so far" for times in (1, 2, 3)]
    assert lines == [f"{line}; the last failure: service_unreachable: refused" for line in expected]
