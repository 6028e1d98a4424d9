"""An update of an item gives the result that the update language defines."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from contract import put, record, same, update, written
from support.dynamodb_tables import fresh_table, opened
from tableside.core import updates, values
from tableside.core.store import Store
from tableside.stores.dynamodb.client import Client


@pytest.fixture(scope="module")
async def store(dynamodb_client: Client) -> AsyncIterator[Store]:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        yield await opened(dynamodb_client, name)


@pytest.mark.parametrize(
    ("before", "document"),
    [
        ({"a": {"b": 1}}, {"a": {"b": None, "c": {"d": None}}}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}),
        ({"a": 1}, {"a": {"c": 2, "d": None}}),
        ({"a": {}}, {"a": {}}),
        ({}, {"a": {}}),
        ({"a": {"b": {}}}, {"$set": {"a.b.c": 1}, "$unset": ["a.d", "x.y"]}),
        ({"a": [1]}, {"$push": {"a": {"$each": []}}}),
        ({}, {"$push": {"a": {"$each": []}}}),
        ({"a": {"b": [1]}}, {"$push": {"a.b": [2]}, "$set": {"a.c": None}}),
        ({"SET": 1, "size": 2}, {"SET": {"REMOVE": 1}, "size": None, "a b": 1, "ü": 2, "a.b": 3}),
        ({f"{index}": index for index in range(200)}, {f"{index}": None for index in range(199)}),
        ({"x" * 3000: 1}, {"x" * 3000: 2, "y" * 3000: 3}),
        ({"a": {"b": {"c": 1}}}, {".".join(["a", "b"]): 1}),
        ({"a": 1}, [{"a": [1]}, {"$push": {"a": 2}}]),
    ],
    ids=lambda case: str(case)[:40],
)
async def test_an_update_of_an_item(store: Store, before: Any, document: Any) -> None:
    await written(store, put("a", before))
    answer = await written(store, update("a", document, returning=True))
    wanted = values.decode(updates.apply(values.encode(before), updates.parse(document)))
    now = await record(store, "a")
    assert same(values.decode(now.value), wanted)
    assert same(values.decode(answer.value or b""), wanted)
    assert answer.etag == now.etag
