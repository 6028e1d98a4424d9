"""Retries: only of operations that may succeed and are safe to repeat, in order, and within limits of time and load."""

import logging
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tableside_client.arrow_table import ChunkSize, repeatable_rows
from tableside_client.calls import Batch, Call, CallLimits, CallSettings, Failures, Pause
from tableside_client.errors import TablesideError
from tableside_client.retries import (
    DEFAULT_RETRIES,
    REPORT_INTERVAL_S,
    START,
    TARGET_S,
    RequestWindow,
    Retries,
    RetryBudget,
    Waits,
)
from tableside_client.table_schema import ServiceLimits
from tableside_spark.plan.concurrency import JOB_SHARE, concurrency

PAUSE_MAX_S = 3.0
"""How long an idle client may take to notice that the service has restarted."""


class Clock:
    """A time that passes only while something waits."""

    now_s = 0.0

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


Outcome = dict[str, object]

OK: Outcome = {"code": None}
BUSY: Outcome = {"code": "store_unavailable", "detail": "", "retriable": True, "applied": "no"}
DOUBT: Outcome = BUSY | {"applied": "unknown"}
WRONG: Outcome = BUSY | {"code": "invalid_operation", "retriable": False}
LARGE: Outcome = BUSY | {"code": "too_large"}


class Scripted(Batch):
    """A batch with one key for each character of a text, which answers each key with its next outcome."""

    def __init__(self, keys: str, script: dict[str, list[Outcome]], repeatable: bool, attempts_max: int) -> None:
        super().__init__(CallLimits(CallSettings()), len(keys))
        self._limits._budget = RetryBudget(Retries(attempts_max, 1.0, 4.0, 1e9), lambda: 0.0, lambda: 1.0)
        self._keys, self._script, self._repeatable = keys, script, repeatable
        self.codes: list[object] = [None] * len(keys)
        self.asked: list[str] = []

    def _send(self, positions: Sequence[int]) -> Call[Failures]:
        self.asked.append("".join(map(self._key, positions)))
        outcomes = {at: self._script[self._key(at)].pop(0) for at in positions}
        for at, outcome in outcomes.items():
            self.codes[at] = outcome["code"]
        yield from ()
        return {at: outcome for at, outcome in outcomes.items() if outcome["code"]}

    def _fail(self, positions: Sequence[int], failure: TablesideError) -> Failures:
        raise AssertionError(positions)

    def _key(self, position: int) -> str:
        return self._keys[position]

    def _is_repeatable(self, position: int) -> bool:
        return self._repeatable


def settle(
    keys: str, script: dict[str, list[Outcome]], *, repeatable: bool = False, attempts_max: int = 5
) -> tuple[list[object], list[str], list[float]]:
    """Return the last codes, the keys of each attempt, and the pauses."""
    batch = Scripted(keys, script, repeatable, attempts_max)
    pauses: list[float] = []
    for step in batch.send_all():
        assert isinstance(step, Pause)
        pauses.append(step.seconds)
    return batch.codes, batch.asked, pauses


def test_only_retriable_operations_are_retried() -> None:
    script = {"a": [OK], "b": [BUSY, BUSY, OK], "c": [WRONG], "d": [BUSY, OK]}
    codes, asked, pauses = settle("abcd", script)
    assert (codes, asked, pauses) == ([None, None, "invalid_operation", None], ["abcd", "bd", "b"], [1.0, 2.0])


def test_an_operation_with_unknown_outcome_is_retried_only_if_that_is_safe() -> None:
    assert settle("a", {"a": [DOUBT]}) == (["store_unavailable"], ["a"], [])
    assert settle("a", {"a": [DOUBT, OK]}, repeatable=True) == ([None], ["a", "a"], [1.0])


def test_after_an_unknown_outcome_later_operations_on_the_key_are_not_sent() -> None:
    codes, asked, _ = settle("aab", {"a": [DOUBT, BUSY], "b": [BUSY, OK]})
    assert (codes, asked) == (["store_unavailable", "store_unavailable", None], ["aab", "b"])


def test_attempts_and_time_are_limited_and_retry_after_is_respected() -> None:
    throttled = BUSY | {"code": "throttled", "retry_after_s": 7.0}
    codes, asked, pauses = settle("ab", {key: [throttled] * 3 for key in "ab"}, attempts_max=3)
    assert (codes, asked, pauses) == (["throttled"] * 2, ["ab"] * 3, [7.0, 7.0])
    spent = RetryBudget(Retries(9, 1.0, 1.0, 5.0), clock=lambda: 0.0, uniform=lambda: 0.0)
    assert spent.next_pause_s(6.0) is None


def test_gets_beyond_the_response_limit_are_requested_again_immediately() -> None:
    codes, _, pauses = settle("abc", {"a": [OK], "b": [LARGE, OK], "c": [LARGE, LARGE, OK]})
    assert (codes, pauses) == ([None] * 3, [])


@pytest.mark.parametrize(
    ("columns", "op", "tokens", "expected"),
    [
        ({}, "update", False, [False, False]),
        ({"sequence": [0, None]}, "update", True, [True, False]),
        ({"order": [-5, None]}, "update", False, [True, False]),
        ({"if_match": ["e", None]}, "put", False, [False, True]),
        ({"later_option": [None, 1]}, "put", False, [True, False]),
        ({"op": ["delete", "update"]}, None, False, [True, False]),
    ],
)
def test_repeatable_operations(
    columns: dict[str, list[object]], op: str | None, tokens: bool, expected: list[bool]
) -> None:
    operations = pa.table({"key": ["a", "b"]} | columns)
    assert repeatable_rows(operations, op, tokens, False).to_pylist() == expected


def test_slow_requests_shrink_the_window_and_quick_ones_grow_it_to_its_maximum() -> None:
    window = RequestWindow(16)
    for seconds, size in ((0.01, 16), (2 * TARGET_S, 1), (0.01, 16)):
        for _ in range(200):
            window.observe(seconds)
        assert window.size == size


def test_rejections_halve_the_window_down_to_one() -> None:
    window = RequestWindow(16)
    for _ in range(200):
        window.observe(0.01)
    sizes = [window.size]
    for code in ("overloaded", "throttled", "deadline_exceeded", "overloaded", "overloaded"):
        window.observe(0.01, code)
        sizes.append(window.size)
    assert sizes == [16, 8, 4, 2, 1, 1]
    window.observe(0.01, "contended")
    assert window.size == 1


def test_the_window_starts_small_and_never_exceeds_its_maximum() -> None:
    assert RequestWindow(16).size == START
    window = RequestWindow(1)
    assert window.size == 1
    window.observe(0.01)
    assert window.size == 1


some = st.integers(1, 200_000)


@given(st.builds(ServiceLimits, some, some, some, some, some), some, some, st.builds(ChunkSize, some, some))
def test_no_limit_and_no_bound_is_exceeded(limits: ServiceLimits, slots: int, in_flight: int, chunk: ChunkSize) -> None:
    found = concurrency(limits, slots, in_flight, chunk)
    requests = found.tasks * found.window
    assert 1 <= found.tasks <= slots
    assert found.window >= 1
    assert 1 <= found.chunk.rows_max <= min(chunk.rows_max, limits.operations_max)
    assert 1 <= found.chunk.bytes_max <= min(chunk.bytes_max, limits.body_bytes_max)
    assert requests <= min(in_flight, max(1, JOB_SHARE * limits.in_flight_max))
    assert requests * found.chunk.rows_max <= max(1, JOB_SHARE * limits.operations_in_flight_max)
    assert requests * found.chunk.bytes_max <= max(1, JOB_SHARE * limits.bytes_in_flight_max)


def test_many_tasks_send_smaller_requests() -> None:
    few, many = (concurrency(ServiceLimits(), slots, 32, ChunkSize()) for slots in (2, 100))
    assert (few.tasks, few.window, few.chunk.rows_max) == (2, 5, 5_000)
    assert (many.tasks, many.window, many.chunk.rows_max) == (32, 1, 1_562)
