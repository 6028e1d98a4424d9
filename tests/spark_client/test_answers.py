"""Retries: only of operations that may succeed and are safe to repeat, in order, and within limits."""

from functools import partial

import pyarrow as pa
import pytest

from tableside_client import batch_retry
from tableside_client.arrow_table import repeatable_rows
from tableside_client.calls import Call, Pause, wait
from tableside_client.errors import TableError
from tableside_client.retries import Retries, RetryBudget

Outcome = dict[str, object]

OK: Outcome = {"status": 204, "replayed": False}
BUSY: Outcome = {"status": 503, "code": "store_unavailable", "retriable": True, "applied": "no", "replayed": False}
DOUBT: Outcome = BUSY | {"applied": "unknown"}
WRONG: Outcome = {"status": 422, "code": "invalid_operation", "retriable": False, "applied": "no", "replayed": False}


def budget(attempts_max: int = 5) -> RetryBudget:
    return RetryBudget(Retries(attempts_max, 1.0, 4.0, 1e9), clock=lambda: 0.0, uniform=lambda: 1.0)


def scripted(script: dict[str, list[Outcome]], asked: list[list[str]]) -> batch_retry.Send:
    """Answer each key with its next scripted outcome."""

    def send(operations: pa.Table) -> Call[batch_retry.BatchResponse]:
        keys = operations["key"].to_pylist()
        asked.append(keys)
        rows = pa.Table.from_pylist([script[key].pop(0) for key in keys], schema=batch_retry.OUTCOMES)
        yield from ()
        return batch_retry.BatchResponse(rows)

    return send


def settle(
    op: str, keys: list[str], send: batch_retry.Send, waits: list[float], limits: RetryBudget | None = None
) -> pa.Table:
    """Return the outcomes. The pauses are added to `waits`."""
    operations = pa.table({"key": pa.array(keys, pa.string())})
    repeatable = repeatable_rows(operations, op, False, False)
    call = batch_retry.send_with_retries(operations, send, repeatable, partial(wait, limits or budget()))
    try:
        while isinstance(step := next(call), Pause):
            waits.append(step.seconds)
    except StopIteration as end:
        return end.value
    raise AssertionError(step)


def test_only_retriable_operations_are_retried_and_outcomes_keep_their_positions() -> None:
    asked: list[list[str]] = []
    waits: list[float] = []
    send = scripted({"a": [OK], "b": [BUSY, BUSY, OK], "c": [WRONG], "d": [BUSY, OK]}, asked)
    answer = settle("update", ["a", "b", "c", "d"], send, waits)
    assert asked == [["a", "b", "c", "d"], ["b", "d"], ["b"]]
    assert answer["code"].to_pylist() == [None, None, "invalid_operation", None]
    assert answer["retries"].to_pylist() == [0, 2, 0, 1]
    assert waits == [1.0, 2.0]


def test_an_update_without_a_token_and_with_unknown_outcome_is_not_retried() -> None:
    asked: list[list[str]] = []
    answer = settle("update", ["a"], scripted({"a": [DOUBT]}, asked), [])
    assert answer["applied"].to_pylist() == ["unknown"]
    assert len(asked) == 1
    answer = settle("put", ["a"], scripted({"a": [DOUBT, OK]}, asked), [])
    assert answer["code"].to_pylist() == [None]


def test_after_an_unknown_outcome_later_operations_on_the_key_are_not_sent() -> None:
    asked: list[list[str]] = []
    script: dict[str, list[Outcome]] = {"a": [DOUBT, BUSY], "b": [BUSY, OK]}
    answer = settle("update", ["a", "a", "b"], scripted(script, asked), [])
    assert asked == [["a", "a", "b"], ["b"]]
    assert answer["code"].to_pylist() == ["store_unavailable", "store_unavailable", None]


def test_attempts_and_time_are_limited_and_retry_after_is_respected() -> None:
    error = TableError("t", "throttled", 429, "slow down", retriable=True, retry_after_s=7.0)
    waits: list[float] = []

    def send(operations: pa.Table) -> Call[batch_retry.BatchResponse]:
        yield from ()
        return batch_retry.failed_response(error, len(operations))

    answer = settle("get", ["a", "b"], send, waits, budget(3))
    assert waits == [7.0, 7.0]
    assert answer["code"].to_pylist() == ["throttled", "throttled"]
    assert answer["retries"].to_pylist() == [2, 2]
    spent = RetryBudget(Retries(9, 1.0, 1.0, 5.0), clock=lambda: 0.0, uniform=lambda: 0.0)
    assert spent.next_pause_s(6.0) is None


def test_gets_beyond_the_response_limit_are_requested_again_immediately() -> None:
    large: Outcome = {"status": 413, "code": "too_large", "retriable": True, "applied": "no", "replayed": False}
    waits: list[float] = []
    send = scripted({"a": [OK], "b": [large, OK], "c": [large, large, OK]}, [])
    assert settle("get", ["a", "b", "c"], send, waits)["code"].null_count == 3
    assert waits == []


def test_a_record_above_the_response_limit_fails_immediately() -> None:
    large: Outcome = {"status": 413, "code": "too_large", "retriable": True, "applied": "no", "replayed": False}
    waits: list[float] = []
    asked: list[list[str]] = []
    answer = settle("get", ["a", "b"], scripted({"a": [large, large], "b": [OK]}, asked), waits)
    assert answer["code"].to_pylist() == ["too_large", None]
    assert (asked, waits) == ([["a", "b"], ["a"]], [])


@pytest.mark.parametrize(
    ("columns", "op", "tokens", "expected"),
    [
        ({}, "get", False, [True, True]),
        ({}, "update", False, [False, False]),
        ({"sequence": [0, None]}, "update", True, [True, False]),
        ({"sequence": [0, 1]}, "update", False, [False, False]),
        ({"if_match": ["e", None]}, "put", False, [False, True]),
        ({"if_absent": [True, False]}, "put", False, [False, True]),
        ({"op": ["delete", "update"]}, None, False, [True, False]),
    ],
)
def test_repeatable_operations(
    columns: dict[str, list[object]], op: str | None, tokens: bool, expected: list[bool]
) -> None:
    operations = pa.table({"key": ["a", "b"]} | columns)
    assert repeatable_rows(operations, op, tokens, False).to_pylist() == expected
