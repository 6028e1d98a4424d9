"""Gets that request what their records remember, which some stores keep apart from the values."""

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from msgspec.structs import replace

from .batch import Batch
from .errors import TableError
from .operations import Get, Key, Operation, Outcome, Record
from .transitions import Stored

ReadStored = Callable[[Key], Awaitable[Stored | TableError | None]]
"""Reads a record with its memory, perhaps without its value."""


def requests_memory(gets: Sequence[Operation]) -> bool:
    """Return whether a get requests the memory of its record."""
    if len(gets) == 1:  # most calls, for which this takes a fifth of the time
        return cast("Get", gets[0]).memory
    batch = gets if isinstance(gets, Batch) else Batch.of(gets)
    return not batch.has_only("key", "max_age_s", "partitions")


async def add_memory(gets: Sequence[Operation], outcomes: Sequence[Outcome], read: ReadStored) -> list[Outcome]:
    """Return the outcomes of gets, with the memory of the records for which a get requests it."""
    pairs = zip(gets, outcomes, strict=True)
    return [with_memory(one, await read(get.key)) if cast("Get", get).memory else one for get, one in pairs]


def with_memory(outcome: Outcome, stored: Stored | TableError | None) -> Outcome:
    """Return the outcome of a get that requests the memory of the record."""
    if isinstance(outcome, Record) and isinstance(stored, Stored):
        return replace(outcome, memory=stored.memory)
    return outcome
