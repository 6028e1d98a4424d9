"""The reads and writes of one call are separated, and their outcomes are merged in order."""

from collections.abc import Sequence

import pytest

from contract import put, update
from tableside.core.directions import applied_if_unanswered, apply_by_direction, direction
from tableside.core.operations import Delete, Get, Operation, Outcome, Written

MIXED: list[Operation] = [put("a"), Get("b"), Delete("c"), Get("d"), update("e", {})]


def test_only_gets_are_reads() -> None:
    assert [direction(operation) for operation in MIXED] == ["write", "read", "write", "read", "write"]
    assert [applied_if_unanswered(operation) for operation in MIXED] == ["unknown", "no", "unknown", "no", "unknown"]


async def test_separate_directions_have_outcomes_in_order() -> None:
    async def read(some: Sequence[Operation]) -> list[Outcome]:
        assert [operation.key for operation in some] == ["b", "d"]
        return [None, None]

    async def write(some: Sequence[Operation]) -> list[Outcome]:
        return [Written(str(operation.key)) for operation in some]

    assert await apply_by_direction(MIXED, read, write) == [Written("a"), None, Written("c"), None, Written("e")]


async def test_an_exception_of_one_direction_is_raised() -> None:
    async def broken(some: Sequence[Operation]) -> list[Outcome]:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await apply_by_direction(MIXED, broken, broken)
