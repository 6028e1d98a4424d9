"""DynamoDB's expressions give the result that the update language defines, for every update and record."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from contract import put, same, update
from support.dynamodb_tables import a_name, fresh_table, make, opened, settings as client_settings
from tableside.core import updates, values
from tableside.core.errors import InvalidOperation
from tableside.core.operations import Get, Operation, Record, Written
from tableside.stores.dynamodb.client import Client
from tableside.stores.dynamodb.store import DynamodbStore

names = st.sampled_from(["x", "y", "z.z", "name", "#", "_"])
scalars = st.none() | st.booleans() | st.sampled_from([0, -1, 0.5, 2**63 - 1, -(2**63), 1e100, "", "s", "ü🛫"])
members = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2), max_leaves=4
)
objects = st.dictionaries(names, members, max_size=4)
paths = st.lists(st.sampled_from(["x", "y", "name"]), min_size=1, max_size=3).map(".".join)
documents = objects | st.fixed_dictionaries(
    {},
    optional={
        "$set": st.dictionaries(paths, members, min_size=1, max_size=3),
        "$unset": st.lists(paths, min_size=1, max_size=2, unique=True),
        "$push": st.dictionaries(
            paths, members | st.builds(lambda each: {"$each": each}, st.lists(members, max_size=2))
        ),
    },
).filter(bool)


def legal(document: Any) -> bool:
    try:
        updates.parse(document)
    except InvalidOperation:
        return False
    return True


@pytest.fixture(scope="module")
async def store(dynamodb_client: Client) -> AsyncIterator[DynamodbStore]:
    async with fresh_table(dynamodb_client, {"id": "S"}) as name:
        yield await opened(dynamodb_client, name)


def test_expressions_give_the_result_of_the_update_language(
    aws_credentials: None, dynamodb_url: str, full: bool
) -> None:
    with asyncio.Runner() as runner:
        client, name = Client(client_settings(dynamodb_url)), a_name()
        runner.run(make(client, name, {"id": "S"}))
        store = runner.run(opened(client, name))

        @settings(max_examples=5 if full else 1, deadline=None, suppress_health_check=list(HealthCheck))
        @given(pairs=st.lists(st.tuples(objects, documents.filter(legal)), min_size=20, max_size=40))
        def agrees(pairs: list[tuple[Any, Any]]) -> None:
            runner.run(check(store, pairs))

        agrees()
        runner.run(client.close())


async def check(store: DynamodbStore, pairs: list[tuple[Any, Any]]) -> None:
    await store.apply([put(f"{index}", before) for index, (before, _) in enumerate(pairs)])
    asked: list[Operation] = [update(f"{index}", document, returning=True) for index, (_, document) in enumerate(pairs)]
    answers = await store.apply(asked)
    found = await store.apply([Get(f"{index}") for index in range(len(pairs))])
    for (before, document), answer, now in zip(pairs, answers, found, strict=True):
        assert isinstance(now, Record)
        try:
            wanted = values.decode(updates.apply(values.encode(before), updates.parse(document)))
        except InvalidOperation:
            assert isinstance(answer, InvalidOperation), (before, document)
            assert same(values.decode(now.value), before)
            continue
        assert isinstance(answer, Written), (before, document, answer)
        assert answer.value is not None
        assert same(values.decode(answer.value), wanted), (before, document)
        assert same(values.decode(now.value), wanted), (before, document)
        assert answer.etag == now.etag


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
async def test_an_update_by_expression(store: DynamodbStore, before: Any, document: Any) -> None:
    await check(store, [(before, document)])
