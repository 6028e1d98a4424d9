"""The same operations have the same outcomes in JSON and in Arrow, in columns and one by one, on random batches.

The service decodes and encodes operations of one kind in columns. Operations of several kinds are decoded one by one.
"""

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from service.http.api_client import ON_EVERY_STORE, ApiClient, Result, fresh

TYPES = {
    "key": pa.utf8(),
    "op": pa.utf8(),
    "value": pa.binary(),
    "update": pa.utf8(),
    "default": pa.utf8(),
    "if_match": pa.utf8(),
    "if_absent": pa.bool_(),
    "ttl_s": pa.float64(),
    "sequence": pa.int64(),
    "order": pa.int64(),
}
TEXT = {"value", "update", "default"}
OTHERS = [{"op": "get", "key": "other"}, {"op": "delete", "key": "other"}]
"""Operations of two kinds. A batch with them is decoded one by one."""

RECORD = {"n": 1, "l": [1], "s": "x"}
"""The record with the keys `c` and `ü`, which exists before each batch. The one of `ü` expires."""

VALUES: list[Any] = [RECORD, {}, {"n": 1.0}, {"n": 0.5, "m": {"a": None}}, {"n": 1e17, "s": "ü"}, {"tailnum": "c"}]
INVALID_VALUES: list[Any] = [{"_ts": 1}, {"": 1}, [], 7, "text", {"n": 2**63}, {"s": "\0"}, {"tailnum": "other"}]
UPDATES: list[Any] = [
    *({"n": 5}, {"n": None, "m": {"a": 1}}, {}, [], {"$inc": {"n": 1}}, {"$set": {"m.a": 1}}, {"$unset": ["n"]}),
    *({"$push": {"l": 1}}, {"$addToSet": {"l": {"$each": [1, 2.0, 2]}}}, [{"$inc": {"n": 1}}, {"m": 1}]),
]
INVALID_UPDATES: list[Any] = [{"$inc": {"s": 1}}, {"$what": {"n": 1}}, {"$set": {"n": 1}, "m": 1}, 7, "text"]

CELLS: dict[str, tuple[list[Any], list[Any]]] = {
    "key": (["a", "b", "c", "c", "d/e", "ü"], ["", "x\0", "x" * 1025]),
    "value": (VALUES, INVALID_VALUES),
    "update": (UPDATES, INVALID_UPDATES),
    "default": (VALUES, INVALID_VALUES),
    "if_match": (["*"], ["x"]),
    "if_absent": ([True, False], [True]),
    "ttl_s": ([-1, 1000, 0.5e6], [0, -2]),
    "sequence": ([1, 2, 3, 2**62], [-1]),
    "order": ([1, 2, 3], [-(2**63)]),
}
"""The valid cells of each member in Arrow, and others that fail."""


OWN = {"get": [], "put": ["value"], "update": ["update"], "delete": []}
OPTIONAL = {
    "get": [],
    "put": ["if_absent", "ttl_s", "if_match", "sequence", "order"],
    "update": ["default", "ttl_s", "if_match", "sequence", "order"],
    "delete": ["if_match", "sequence", "order"],
}
"""The members that an operation of each kind needs, and those that it may have."""


def random_batch(chance: random.Random) -> list[dict[str, Any]]:
    """Return operations of one kind that mostly have the same members, half of the batches without an invalid one.

    Above 100, keys are in an array and gets are answered together.
    """
    op = chance.choice(["get", "put", "put", "update", "update", "delete"])
    names = {"key", *OWN[op], *(name for name in OPTIONAL[op] if chance.random() < 0.4)}
    if chance.random() < 0.1:
        names.add(chance.choice([*CELLS]))
    rows, invalid = [], chance.choice([0, 0.1])
    count = chance.choice([5, 130]) if op == "get" else chance.randrange(1, 12) * chance.choice([1, 1, 4, 16])
    for _ in range(count):
        given = {name for name in sorted(names) if name == "key" or chance.random() < 0.9}
        rows.append(
            {"op": op} | {name: chance.choice(CELLS[name][chance.random() < invalid]) for name in sorted(given)}
        )
    return rows


def mixed_batch(chance: random.Random) -> list[dict[str, Any]]:
    """Return operations of several kinds."""
    found = [one for _ in range(3) for one in random_batch(chance)]
    return chance.sample([*found, {"op": "steal", "key": "a"}], len(found) // 2)


@ON_EVERY_STORE
@pytest.mark.parametrize("table", ["", "aircraft"], ids=["plain", "named key"])
def test_random_batches_have_the_same_outcomes_in_json_and_in_arrow(api: ApiClient, full: bool, table: str) -> None:
    chance = random.Random(1)
    for number in range(400 if full else 80):
        batch = random_batch(chance) if number % 4 else mixed_batch(chance)
        returning, outcomes = chance.random() < 0.5, []
        for send, of in ((sent_as_json, of_json), (sent_one_by_one, of_json), (sent_as_arrow, of_arrow)):
            used = prepared(api, table)
            outcomes.append((patterned([of(one) for one in send(api, used, batch, returning)]), left(api, used)))
        assert outcomes[0] == outcomes[1], batch
        assert outcomes[0] == outcomes[2], batch


def prepared(api: ApiClient, table: str = "") -> str:
    """Return a table that has only the records `c` and `ü`: this one, or a new one."""
    if table:
        keys = ["other", *CELLS["key"][0]]
        api.batch(table, *({"op": "delete", "key": key, "forget": True} for key in keys))
    used = table or fresh("same")
    records = [{"op": "put", "key": "c", "value": RECORD}, {"op": "put", "key": "ü", "value": RECORD, "ttl_s": 1000}]
    api.batch(used, *records)
    return used


def sent_as_json(api: ApiClient, table: str, batch: list[Any], returning: bool, *more: dict[str, Any]) -> list[Result]:
    writer = fresh("writer")  # A deleted record remembers its writers.
    return api.batch(table, *[as_json(one, returning, writer) for one in batch], *more)[: len(batch)]


def sent_one_by_one(api: ApiClient, table: str, batch: list[dict[str, Any]], returning: bool) -> list[Result]:
    return sent_as_json(api, table, batch, returning, *OTHERS)


def as_json(one: dict[str, Any], returning: bool, writer: str) -> dict[str, Any]:
    given = dict(one)
    if "sequence" in given:
        given["token"] = {"writer": writer, "sequence": given.pop("sequence")}
    return {**given, "return": True} if returning and given["op"] != "get" else given


def sent_as_arrow(api: ApiClient, table: str, batch: list[dict[str, Any]], returning: bool) -> list[Result]:
    names = {"key", "op"}.union(*batch)
    columns = {name: pa.array([cell(one, name) for one in batch], TYPES[name]) for name in sorted(names)}
    query = {"writer": fresh("writer")} if "sequence" in names else {}
    return api.rows(table, columns, **query, **({"return": "true"} if returning else {}))


def cell(one: dict[str, Any], name: str) -> Any:
    if name not in one:
        return None
    return json.dumps(one[name]).encode() if name == "value" else json.dumps(one[name]) if name in TEXT else one[name]


def of_json(result: Result) -> tuple[Any, ...]:
    error = [result.get("error", {}).get(name) for name in ("code", "detail", "retriable", "applied")]
    flags = result.get("replayed", False), result.get("superseded", False), "expires_at" in result
    return result["status"], result.get("value"), result.get("etag"), *error, *flags


def of_arrow(row: Result) -> tuple[Any, ...]:
    value = None if row["value"] is None else json.loads(row["value"])
    members = [row[name] for name in ("etag", "code", "detail", "retriable", "applied", "replayed")]
    return row["status"], value, *members, row.get("superseded") or False, row.get("expires_at") is not None


def patterned(outcomes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Replace each etag by its first position, since only the equality of etags matters."""
    first: dict[str | None, int | None] = {None: None}
    return [
        (status, value, first.setdefault(etag, position), *rest)
        for position, (status, value, etag, *rest) in enumerate(outcomes)
    ]


def left(api: ApiClient, table: str) -> list[tuple[Any, ...]]:
    return [(record["key"], record["value"], "expires_at" in record) for record in api.walk(table)]
