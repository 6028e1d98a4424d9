"""Ordered writes of the clients for Python, with a real service."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from servers.proxy import FaultProxy
from support.running import Service
from tableside_client import Client, InvalidOperation, TableNotFound

pytestmark = pytest.mark.server

EXACT = 2**62 + 1  # no double represents it


async def test_the_newest_write_wins_whatever_arrives_last(people: Any) -> None:
    assert not (await people.put("ada", {"city": "London", "age": 36}, order=EXACT)).superseded
    older = await people.put("ada", {"city": "Paris"}, order=EXACT - 1)
    assert (older.superseded, older.etag) == (True, (await people.record("ada")).etag)
    assert (await people.update("ada", {"city": "Rome"}, order=-5, return_value=True)).value["city"] == "London"
    newer = await people.update("ada", [{"$set": {"city": "Turin"}}, {"$unset": ["age"]}], order=EXACT + 1)
    assert (newer.superseded, await people.get("ada")) == (False, {"city": "Turin"})
    assert not (await people.delete("ada", order=EXACT + 2)).superseded
    late = await people.update("ada", {"city": "Pisa"}, order=EXACT + 1)
    assert (late.superseded, late.etag, await people.get("ada")) == (True, None, None)
    assert (await people.update("ada", {"city": "Pisa"}, order=EXACT + 3)).created


@pytest.mark.parametrize("key", ["ada", "a/b", ".."])
async def test_a_forgotten_record_accepts_lower_orders(people: Any, key: str) -> None:
    await people.put(key, {"n": 1}, order=2**63 - 1, token="w")
    etag = (await people.record(key)).etag
    assert (await people.put(key, {"n": 2}, order=5)).superseded
    await people.delete(key, forget=True, if_match=etag)
    written = await people.put(key, {"n": 3}, order=5, token="w")
    assert (written.superseded, written.replayed, await people.get(key)) == (False, False, {"n": 3})


async def test_a_batch_orders_its_operations_one_by_one(people: Any) -> None:
    outcomes = await people.batch(
        [
            {"op": "put", "key": "a", "value": {"n": 1}, "order": EXACT},
            {"op": "put", "key": "a", "value": {"n": 0}, "order": EXACT - 1},
            {"op": "update", "key": "a", "update": {"$inc": {"n": 1}}, "order": EXACT},
            {"op": "update", "key": "a", "update": {"m": 2}, "order": EXACT, "return": True},
            {"op": "delete", "key": "a", "order": None, "forget": True},
            {"op": "delete", "key": "a", "forget": 1},
            {"op": "put", "key": "a", "value": {"n": 2}, "order": 1},
        ]
    )
    assert [outcome.status for outcome in outcomes] == [204, 204, 422, 200, 204, 422, 204]
    assert [outcome.superseded for outcome in outcomes] == [False, True, False, False, False, False, False]
    assert (outcomes[3].value, await people.get("a")) == ({"n": 1, "m": 2}, {"n": 2})


async def test_an_ordered_write_with_a_lost_response_is_repeated_without_a_token(
    opened: Callable[..., Any], service: Service, name: str
) -> None:
    people = (await opened()).table(name)
    await people.put("ada", {"n": 0}, token="import")
    async with FaultProxy("127.0.0.1", int(service.url.rpartition(":")[2])) as proxy:
        for number in range(9):  # The record remembers 8 writers: it would forget the token for those of 9 clients.
            table = (await opened(f"http://127.0.0.1:{proxy.port}")).table(name)
            proxy.answer_lost(once=True)
            await table.update("ada", {"n": number}, order=number)
            proxy.answer_lost(once=True)
            [outcome] = await table.batch([{"op": "update", "key": "ada", "update": {"m": number}, "order": number}])
            assert outcome.ok
    assert (await people.put("ada", {}, token="import")).replayed
    assert await people.get("ada") == {"n": 8, "m": 8}


@pytest.mark.parametrize(("order", "failure"), [(True, TypeError), ("5", TypeError), (2**63, ValueError)])
async def test_an_order_that_is_no_integer_of_64_bits_is_not_sent(
    people: Any, order: Any, failure: type[Exception]
) -> None:
    for call in (
        people.put("a", {}, order=order),
        people.update("a", {}, order=order),
        people.delete("a", order=order),
        people.batch([{"op": "put", "key": "a", "value": {}}, {"op": "delete", "key": "a", "order": order}]),
    ):
        with pytest.raises(failure, match="an order must be an integer"):
            await call
    with pytest.raises(TableNotFound):  # The first write would create the table.
        await people.get("a")


@pytest.mark.parametrize(
    "options", [{"if_match": "*", "order": 1}, {"order": 1, "forget": True}, {"token": "w", "forget": True}]
)
async def test_an_order_cannot_be_combined(people: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOperation, match="cannot be combined"):
        await people.delete("a", **options)


def test_arrow_outcomes_show_what_is_superseded(service: Service, name: str) -> None:
    rows = pa.table({"key": ["a", "a", "b"], "value": ['{"n": 2}', '{"n": 1}', "{}"], "order": [EXACT, 1, None]})
    with Client(service.url) as client:
        outcomes = client.arrow_table(name).batch(rows, op="put")
        assert outcomes["superseded"].to_pylist() == [False, True, False]
        assert "superseded" not in client.arrow_table(name).batch(rows.drop_columns("order"), op="put").column_names
