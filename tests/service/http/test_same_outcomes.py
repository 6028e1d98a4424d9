"""JSON and Arrow give the same outcomes for the same operations, on any batch."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

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
    "partitions": pa.list_(pa.int64()),
}
TEXT = {"value", "update", "default"}

numbers = st.integers(-3, 3) | st.sampled_from([0.5, 2.0, 1e300, 2**63 - 1, 2**63, -(2**63) - 1])
members = st.recursive(
    st.none() | st.booleans() | numbers | st.sampled_from(["", "a", "ü", "\0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", ""]), inner, max_size=2),
    max_leaves=4,
)
values = st.dictionaries(st.sampled_from(["n", "m", "l", "s"]), members, max_size=3) | st.sampled_from(
    [{"_ts": 1}, {"": 1}, [], 7, "text", {"n": 1}, {"n": 1, "l": [1], "s": "x"}]
)
updates: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"n": 5},
        {"n": None, "m": {"a": 1}},
        {},
        [],
        {"$inc": {"n": 1}},
        {"$inc": {"n": 0.5}},
        {"$set": {"m.a": 1}},
        {"$unset": ["n"]},
        {"$push": {"l": 1}},
        {"$addToSet": {"l": {"$each": [1, 2.0, 2]}}},
        {"$min": {"n": 0}, "$max": {"s": "y"}},
        [{"$inc": {"n": 1}}, {"m": 1}],
        {"$what": {"n": 1}},
        {"$set": {"n": 1}, "m": 1},
        7,
        "text",
    ]
)
keys = st.sampled_from(["a", "b", "c", "d/e", "ü", "", "x\0"])
ttls = st.sampled_from([-1, 1000, 0.5e6, 0, -2])
sequences = st.sampled_from([0, 1, 2, 3, -1])
choices: st.SearchStrategy[Any] = st.sampled_from([None, [], [0], [1], [1, 0], [-1], [None], [2], [-1, 0], [None, 0]])


def operation(op: str, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.just(op), "key": keys}, optional=optional)


conditions = {"if_match": st.sampled_from(["*", "x"]), "sequence": sequences}
operations = (
    operation("get")
    | operation("put", value=values, if_absent=st.booleans(), ttl_s=ttls, **conditions)
    | operation("put", value=values)
    | operation("update", update=updates, default=values, ttl_s=ttls, **conditions)
    | operation("update", update=updates, default=st.just({"n": 1}))
    | operation("delete", **conditions)
    | operation("delete", ttl_s=ttls)
    | operation("get", value=values)
    | operation("steal")
)
placed = st.tuples(operations, st.none() | choices.map(lambda chosen: (chosen,))).map(
    lambda both: both[0] if both[1] is None else {**both[0], "partitions": both[1][0]}
)
"""Operations with and without partitions. An absent member differs from null."""

RANDOM = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


@ON_EVERY_STORE
def test_random_batches_have_the_same_outcomes_in_json_and_in_arrow(api: ApiClient, full: bool) -> None:
    @settings(RANDOM, max_examples=120 if full else 40)
    @given(batch=st.lists(operations, max_size=12), returning=st.booleans())
    def check(batch: list[dict[str, Any]], returning: bool) -> None:
        check_outcomes(api, batch, returning)

    check()


def check_outcomes(api: ApiClient, batch: list[dict[str, Any]], returning: bool) -> None:
    """Send each form to a separate table, and compare the outcomes and the remaining records."""
    tables = fresh("json"), fresh("arrow")
    for table in tables:
        api.put(table, "c", {"n": 1, "l": [1], "s": "x"})
    as_json = [of_json(one) for one in sent_as_json(api, tables[0], batch, returning)]
    as_arrow = [of_arrow(one) for one in sent_as_arrow(api, tables[1], batch, returning)]
    assert patterned(as_json) == patterned(as_arrow)
    assert left(api, tables[0]) == left(api, tables[1])


@pytest.mark.parametrize("api", ["memory", "partitioned"], indirect=True)
def test_random_batches_for_partitions_have_the_same_outcomes_in_json_and_in_arrow(api: ApiClient, full: bool) -> None:
    """A table without partitions rejects each operation that names some. In Arrow, the column applies to every row."""

    @settings(RANDOM, max_examples=150 if full else 60)
    @given(batch=st.lists(placed, max_size=10), returning=st.booleans())
    def check(batch: list[dict[str, Any]], returning: bool) -> None:
        check_outcomes_in_partitions(api, batch, returning)

    check()


def check_outcomes_in_partitions(api: ApiClient, batch: list[dict[str, Any]], returning: bool) -> None:
    if any("partitions" in one for one in batch):
        batch = [{"partitions": [None], **one} for one in batch]
    tables = fresh("json"), fresh("arrow")
    for table in tables:
        api.put(table, "c", {"n": 1, "l": [1], "s": "x"})
    whole = ApiClient(api.client)
    told_in_json = [in_partitions(one, of_json) for one in sent_as_json(whole, tables[0], batch, returning)]
    told_in_arrow = [in_partitions(one, of_arrow) for one in sent_as_arrow(whole, tables[1], batch, returning)]
    assert told_in_json == told_in_arrow
    assert left(api, tables[0]) == left(api, tables[1])


def in_partitions(result: Result, of: Callable[[Result], tuple[Any, ...]]) -> Any:
    """Return an outcome and those of its partitions, with each etag replaced by whether there is one."""
    told = (*of(result), bool(result.get("dropped")))
    parts = result.get("partitions")
    # In Arrow, only the combined outcome contains the expiry.
    each = None if parts is None else [(part["partition"], *of(part)[:-1]) for part in parts]
    return [
        tuple(member is not None if place == ETAG else member for place, member in enumerate(one))
        for one in [told, *[(*part[1:], part[0]) for part in each or []]]
    ], each is None


ETAG = 2
"""The index of the etag in an outcome."""


def sent_as_json(api: ApiClient, table: str, batch: list[dict[str, Any]], returning: bool) -> list[Result]:
    sent = []
    for one in batch:
        given_ = dict(one)
        if "sequence" in given_:
            given_["token"] = {"writer": "w", "sequence": given_.pop("sequence")}
        if returning and given_["op"] != "get":
            given_["return"] = True
        sent.append(given_)
    return api.batch(table, *sent)


def sent_as_arrow(api: ApiClient, table: str, batch: list[dict[str, Any]], returning: bool) -> list[Result]:
    names = {"key", "op"}.union(*batch)
    columns = {name: pa.array([cell(one, name) for one in batch], TYPES[name]) for name in sorted(names)}
    query = {"writer": "w"} if "sequence" in names else {}
    return api.rows(table, columns, **query, **({"return": "true"} if returning else {}))


def cell(one: dict[str, Any], name: str) -> Any:
    if name not in one:
        return None
    return json.dumps(one[name]).encode() if name == "value" else json.dumps(one[name]) if name in TEXT else one[name]


def of_json(result: Result) -> tuple[Any, ...]:
    error = result.get("error", {})
    return (
        result["status"],
        result.get("value"),
        result.get("etag"),
        error.get("code"),
        error.get("detail"),
        error.get("retriable"),
        error.get("applied"),
        result.get("replayed", False),
        "expires_at" in result,
    )


def of_arrow(row: Result) -> tuple[Any, ...]:
    value = None if row["value"] is None else json.loads(row["value"])
    names = ("etag", "code", "detail", "retriable", "applied", "replayed")
    return (row["status"], value, *(row[name] for name in names), row.get("expires_at") is not None)


def patterned(outcomes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Replace each etag by its first position, since only the equality of etags matters."""
    first: dict[str | None, int | None] = {None: None}
    return [
        (status, value, first.setdefault(etag, position), *rest)
        for position, (status, value, etag, *rest) in enumerate(outcomes)
    ]


def left(api: ApiClient, table: str) -> list[tuple[Any, ...]]:
    return [(record["key"], record["value"], "expires_at" in record) for record in api.walk(table)]
