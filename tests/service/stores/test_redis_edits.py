"""Redis applies updates of members, and puts with new tokens, in one round trip, with the same results as otherwise."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from contract import put, record, update, value, written
from support.redis_tables import table
from tableside.core import values
from tableside.core.errors import InvalidOperation
from tableside.core.operations import Delete, Get, Operation, Outcome, Token, Written
from tableside.core.store import Store, TableSpec
from tableside.stores.memory import MemoryStore
from tableside.stores.redis.connection import Node

pytestmark = pytest.mark.server

NUMBERS = [0, 1, -1, 7, 2**31, 2**53 - 1, 2**53, -(2**53), 1 - 2**53, 2**63 - 1, -(2**63), 0.5, -0.0, 1e300, 1e16, 1.0]
MEMBERS = [*NUMBERS, None, True, "", "b", 'q"', '"n":1', ',"n":1', "ü\\", [], [1], {}, {"n": 1}, [{"n": 2}]]
NAMES = ["n", "m", "nn", "deep.n", "ü"]
DOCUMENTS = st.dictionaries(st.sampled_from(["n", "m", "nn", "deep", "x", 'a"n']), st.sampled_from(MEMBERS))
UPDATES = st.dictionaries(
    st.sampled_from(["$inc", "$min", "$max", "$set"]),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(MEMBERS), min_size=1, max_size=2),
    min_size=1,
    max_size=2,
)
CHANGES = UPDATES | DOCUMENTS


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    async with table(redis_url) as opened:
        yield opened


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of commands of each request to Redis, as far as there are any."""
    counts: list[int] = []
    send = Node.send

    async def counted(node: Node, parts: list[bytes], count: int, *rest: Any, **named: Any) -> Any:
        counts.append(count)
        return await send(node, parts, count, *rest, **named)

    monkeypatch.setattr(Node, "send", counted)
    return counts


def described(outcome: Outcome) -> tuple[object, ...]:
    """Return an outcome without its etag, which differs between stores."""
    if isinstance(outcome, Written):
        return outcome.created, outcome.value, outcome.replayed
    return type(outcome), str(outcome)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(document=DOCUMENTS, change=CHANGES | st.lists(CHANGES, max_size=3), default=st.none() | DOCUMENTS)
def test_every_update_gives_the_record_and_the_outcome_of_the_general_path(
    redis_url: str, document: dict[str, Any], change: object, default: dict[str, Any] | None
) -> None:
    async def both() -> None:
        async with table(redis_url) as edited:
            general = MemoryStore(TableSpec("edits"))
            try:
                writes: list[Operation] = [
                    update("present", change, default, returning=True),
                    update("absent", change, default, returning=True),
                ]
            except InvalidOperation:
                return  # no such update exists
            found = []
            for each in (edited, general):
                await each.apply([put("present", document), Delete("absent")])
                outcomes = await each.apply(writes)
                read = await each.apply([Get("present"), Get("absent")])
                found.append([*map(described, outcomes), *(getattr(one, "value", one) for one in read)])
            assert found[0] == found[1]

    asyncio.run(both())


@pytest.mark.parametrize(
    ("document", "change", "expected"),
    [
        ({"n": 1}, {"$inc": {"n": 2}}, {"n": 3}),
        ({"a": "x", "n": -5, "b": {"n": 1}}, {"$inc": {"n": 5}}, {"a": "x", "n": 0, "b": {"n": 1}}),
        ({"n": 5, "m": "text"}, {"$set": {"n": [1, "x"], "m": None}}, {"n": [1, "x"], "m": None}),
        ({"n": 5, "m": "text"}, {"n": [1, "x"], "m": True, "x": 1}, {"n": [1, "x"], "m": True, "x": 1}),
        ({"n": 1}, [{"$inc": {"n": 2}}, {"$max": {"n": 2}, "$set": {"m": 1}}, {"$inc": {"m": 1}}], {"n": 3, "m": 2}),
    ],
)
@pytest.mark.parametrize("ttl_s", [None, 60])
async def test_an_edit_takes_one_round_trip(
    store: Store,
    requests: list[int],
    document: dict[str, Any],
    change: object,
    expected: dict[str, Any],
    ttl_s: float | None,
) -> None:
    await written(store, put("a", document))
    requests.clear()
    [outcome] = await store.apply([update("a", change, ttl_s=ttl_s, returning=True)])
    assert requests == [1]
    assert isinstance(outcome, Written)
    assert outcome.value == values.encode(expected)
    found = await record(store, "a")
    assert (found.etag, found.expires_ms) == (outcome.etag, outcome.expires_ms)
    assert (found.expires_ms > 0) == (ttl_s is not None)


NO_TOKENS: list[tuple[str, int]] = []


@pytest.mark.parametrize(
    ("before", "token"),
    [
        (NO_TOKENS, ("w", 0)),
        (NO_TOKENS, ("client 7/[x],#", 10**15 - 1)),
        (NO_TOKENS, ("w", 2**63 - 1)),
        (NO_TOKENS, ("back\\slash", 1)),
        ([("w", 5)], ("w", 5)),
        ([("w", 6), ("v", 1)], ("w", 5)),
        ([("w", 9), ("ww", 9), ("w,", 9)], ("w", 10)),
        ([("w", 999)], ("w", 1000)),
        ([("w", 1000)], ("w", 999)),
        ([("w", 2**53)], ("w", 2**53 + 1)),
        ([("w", 2**53 + 1)], ("w", 2**53)),
        ([('a",5],["w', 9)], ("w", 5)),
        ([("ü", 1)], ("w", 5)),
        ([(f"w{index}", index) for index in range(8)], ("w8", 1)),
        ([(f"w{index}", index) for index in range(8)], ("w3", 9)),
    ],
)
@pytest.mark.parametrize("kind", ["update", "put"])
async def test_a_write_with_a_token_has_the_outcome_and_the_memory_of_the_general_path(
    store: Store, before: list[tuple[str, int]], token: tuple[str, int], kind: str
) -> None:
    options: Any = {"returning": True, "token": Token(*token)}
    found = []
    for each in (store, MemoryStore(TableSpec("edits"))):
        await written(each, put("a", {"n": 1}))
        for writer, sequence in before:
            await written(each, put("a", {"n": 1}, token=Token(writer, sequence)))
        write = update("a", {"$inc": {"n": 1}}, **options) if kind == "update" else put("a", {"n": 2}, **options)
        outcome = await written(each, write)
        again = [update("a", {"n": 9}, token=Token(*other)) for other in (*before, token, ("unknown", 0))]
        replays = [(await written(each, write)).replayed for write in again]
        found.append((described(outcome), replays, await value(each, "a")))
    assert found[0] == found[1]
