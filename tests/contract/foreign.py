"""Contract tests for stores that other tools write to: their records are read, and invalid ones are never absent."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tableside.core.errors import RecordUnreadable
from tableside.core.operations import Delete, Get, Token, Write
from tableside.core.store import Store

from .words import etag, one, put, record, refused, scanned, update, value, written

REPAIRS: dict[str, Callable[[str], Write]] = {
    "put": lambda key: put(key, {"n": 1}),
    "put once": lambda key: put(key, {"n": 1}, token=Token("w", 1)),
    "delete": Delete,
    "delete once": lambda key: Delete(key, token=Token("w", 1)),
}
"""Writes that replace or delete an invalid record."""


class ForeignRecords(ABC):
    """A table whose records another tool has written."""

    valid: Any
    """The record {"n": 1, "s": "x"}, as another tool may write it."""
    invalid: Sequence[Any]

    @abstractmethod
    def containing(self, records: Mapping[str, Any]) -> AbstractAsyncContextManager[Store]:
        """Open a new table in which another tool has written these records."""

    async def test_a_record_of_another_tool_is_read_and_written(self) -> None:
        async with self.containing({"a": self.valid, "b": self.valid}) as store:
            assert (await record(store, "a")).value.replace(b" ", b"") == b'{"n":1,"s":"x"}'
            version = await etag(store, "a")
            assert version == await etag(store, "a")
            found = await store.apply([Get("a"), *(Get(f"{index}") for index in range(50))])
            assert found == [await record(store, "a"), *[None] * 50]
            await written(store, update("a", {"$inc": {"n": 1}}, if_match=(version,)))
            assert await value(store, "a") == {"n": 2, "s": "x"}
            assert await etag(store, "a") != version
            assert {*await scanned(store)} == {"a", "b"}
            await written(store, Delete("b"))
            assert await one(store, Get("b")) is None

    async def test_an_invalid_record_is_unreadable_and_can_be_replaced_or_deleted(self) -> None:
        records = {f"{repair} {number}": junk for number, junk in enumerate(self.invalid) for repair in REPAIRS}
        async with self.containing({**records, "valid": self.valid}) as store:
            outcomes = await store.apply([Get(key) for key in (*records, "absent", "valid")])
            assert all(refused(outcome, RecordUnreadable) for outcome in outcomes[:-2])
            assert outcomes[-2:] == [None, await record(store, "valid")]
            for key in records:
                for operation in (
                    Get(key),
                    update(key, {"n": 1}, {}),
                    put(key, {}, if_absent=True),
                    put(key, {}, if_match=("x",)),
                    Delete(key, if_match=("*",)),
                ):
                    assert refused(await one(store, operation), RecordUnreadable), (key, operation)
            with pytest.raises(RecordUnreadable, match="the scan cannot continue at the key `"):
                await scanned(store)
            for key in records:
                await written(store, REPAIRS[key.rpartition(" ")[0]](key))
            assert {*await scanned(store)} == {"valid", *(key for key in records if key.startswith("put"))}
