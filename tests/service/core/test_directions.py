"""The direction of a call decides its limits, and whether it may have been applied."""

import pytest

from contract import put, update
from tableside.core import Batch
from tableside.core.directions import applied_if_unanswered, at_positions, direction
from tableside.core.operations import Delete, Get, Operation

WRITES: list[Operation] = [put("a"), Delete("a"), update("a", {})]


@pytest.mark.parametrize("operation", [Get("a"), *WRITES])
def test_only_calls_of_gets_are_reads(operation: Operation) -> None:
    expected = ("read", "no") if isinstance(operation, Get) else ("write", "unknown")
    for call in ([operation] * 2, Batch.of([operation] * 2)):
        assert (direction(call), applied_if_unanswered(call)) == expected


def test_a_part_of_a_call_in_columns_is_in_columns() -> None:
    gets = [Get(key) for key in "abc"]
    assert at_positions(gets, [2, 0]) == [Get("c"), Get("a")]
    part = at_positions(Batch.of(gets), [2, 0])
    assert isinstance(part, Batch)
    assert part == [Get("c"), Get("a")]
