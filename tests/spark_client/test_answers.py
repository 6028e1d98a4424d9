"""Retries: only of operations that may succeed and are safe to repeat, in order, and within limits."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tableside_client.arrow_table import repeatable_rows
from tableside_client.calls import Batch, Call, CallLimits, CallSettings, Failures, Pause
from tableside_client.errors import TablesideError
from tableside_client.retries import Retries, RetryBudget

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


def test_a_record_above_the_response_limit_fails_immediately() -> None:
    codes, asked, pauses = settle("ab", {"a": [LARGE, LARGE], "b": [OK]})
    assert (codes, asked, pauses) == (["too_large", None], ["ab", "a"], [])


@pytest.mark.parametrize(
    ("columns", "op", "tokens", "expected"),
    [
        ({}, "get", False, [True, True]),
        ({}, "update", False, [False, False]),
        ({"sequence": [0, None]}, "update", True, [True, False]),
        ({"sequence": [0, 1]}, "update", False, [False, False]),
        ({"order": [-5, None]}, "update", False, [True, False]),
        ({"if_match": ["e", None]}, "put", False, [False, True]),
        ({"later_option": [None, 1]}, "put", False, [True, False]),
        ({"if_absent": [True, False]}, "put", False, [False, True]),
        ({"op": ["delete", "update"]}, None, False, [True, False]),
    ],
)
def test_repeatable_operations(
    columns: dict[str, list[object]], op: str | None, tokens: bool, expected: list[bool]
) -> None:
    operations = pa.table({"key": ["a", "b"]} | columns)
    assert repeatable_rows(operations, op, tokens, False).to_pylist() == expected
