"""Frames of pyarrow, pandas and Polars with a real service: what came in comes out."""

import datetime as dt
import json
import pickle
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from servers.proxy import FaultProxy
from spark_client.client.both import batches
from support.running import Service, running
from tableside_client import Client, FrameWriteError, LoadError, Retries, TableNotFound, col
from tableside_client.frames.kinds import ArrowTables
from tableside_client.frames.schemas import arrow_schema

pytestmark = pytest.mark.server

KINDS = ("arrow", "pandas", "polars")
EXACT = 2**53 + 1
DAY = dt.date(2026, 11, 20)
TIME = dt.datetime(2026, 11, 20, 8, 30, 0, 123456, tzinfo=dt.UTC)
TEXT = 'ü\U0001f600 "\\\n\x7f'


def frame_of(kind: str, table: pa.Table) -> Any:
    """Return a frame of a kind, with values and types as exact as the kind allows."""
    if kind == "arrow":
        return table
    return pl.from_arrow(table) if kind == "polars" else table.to_pandas(types_mapper=pd.ArrowDtype)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame, with None for null."""
    if isinstance(frame, pa.Table):
        found: list[dict[str, Any]] = frame.to_pylist(maps_as_pydicts="strict")
        return found
    if isinstance(frame, pl.DataFrame):
        return frame.to_dicts()
    assert isinstance(frame, pd.DataFrame)
    return [{str(name): _or_none(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _or_none(value: Any) -> Any:
    return None if not isinstance(value, list | dict) and pd.isna(value) else value


def kind_name(frame: Any) -> str:
    return {pa.Table: "arrow", pd.DataFrame: "pandas", pl.DataFrame: "polars"}[type(frame)]


def sorted_rows(frame: Any) -> list[dict[str, Any]]:
    return sorted(rows_of(frame), key=lambda row: str(row["key"]))


TYPES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "int64": (pa.int64(), [EXACT, -(2**63)], [EXACT, -(2**63)]),
    "boolean": (pa.bool_(), [True, None], [True, None]),
    "string": (pa.string(), [TEXT, ""], [TEXT, ""]),
    "date": (pa.date32(), [DAY, None], ["2026-11-20", None]),
    "timestamp": (pa.timestamp("us", "UTC"), [TIME, None], ["2026-11-20T08:30:00.123456Z", None]),
    "nanoseconds": (pa.timestamp("ns"), [TIME.replace(tzinfo=None)] * 2, ["2026-11-20T08:30:00.123456"] * 2),
    "decimal": (pa.decimal128(15, 2), [Decimal("0.10"), Decimal("3.00")], [0.1, 3]),
    "list": (pa.list_(pa.int64()), [[1, None], []], [[1, None], []]),
    "struct": (pa.struct({"a": pa.string(), "b": pa.list_(pa.float64())}), *[[{"a": "x", "b": [0.5]}, None]] * 2),
}  # fmt: skip
"""The type of a column, its values, and their JSON."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", TYPES)
def test_a_value_of_every_type_is_stored_and_read_back(service: Service, name: str, case: str, kind: Any) -> None:
    arrow_type, values, documents = TYPES[case]
    table = pa.table({"key": ["a", "b"], "v": pa.array(values, arrow_type)})
    with Client(service.url) as client:
        people = client.table(name)
        assert people.load(frame_of(kind, table), key="key") == 2
        assert people.get_many(["a", "b"]) == {"a": {"v": documents[0]}, "b": {"v": documents[1]}}
        read = people.scan_frame(schema={"v": arrow_type}, kind=kind)
        assert kind_name(read) == kind
        assert sorted_rows(read) == rows_of(table)
        if kind == "arrow":
            assert read.schema == table.schema
        untyped = people.scan_frame(kind=kind)
        assert [row["v"] for row in sorted_rows(untyped)] == documents


async def load_members(people: Any, members: Mapping[str, Any]) -> None:
    """Store records with one member `v`, whose values are given by key."""
    await people.load((key, {"v": value}) for key, value in members.items())


@pytest.mark.parametrize("kind", KINDS)
async def test_enrich_keeps_rows_columns_and_types(people: Any, kind: str) -> None:
    await people.load([("a", {"n": EXACT, "b": True}), ("b", {"n": 1, "b": False, "s": TEXT})])
    keys = ["b", None, "a", "", "absent", "a"]
    frame = frame_of(kind, pa.table({"own": pa.array(range(6), pa.int16()), "k": pa.array(keys).dictionary_encode()}))
    if kind == "pandas":
        frame = frame.set_axis([5, 5, "x", 1.5, 0, None]).astype({"own": "category", "k": object})
        before = frame.copy()
    found = await people.enrich(frame, on="k", columns=["n", "b", "s", "none"])
    assert kind_name(found) == kind
    assert [row["n"] for row in rows_of(found)] == [1, None, EXACT, None, None, EXACT]
    assert [row["b"] for row in rows_of(found)] == [False, None, True, None, None, True]
    assert [row["s"] for row in rows_of(found)] == [TEXT, *[None] * 5]
    assert [row["none"] for row in rows_of(found)] == [None] * 6
    if kind == "pandas":
        pd.testing.assert_frame_equal(found[["own", "k"]], before)
        pd.testing.assert_frame_equal(frame, before)
        assert [str(dtype) for dtype in found.dtypes[2:4]] == ["Int64", "boolean"]
    else:
        assert found[:, :2].equals(frame) if kind == "polars" else found.select(["own", "k"]).equals(frame)


async def test_missing_values_of_pandas_are_null(people: Any) -> None:
    frame = pd.DataFrame(
        {
            "k": ["nan", "nat", "na", "none", pd.NA, float("nan")],
            "v": [float("nan"), pd.NaT, pd.NA, None, 1, 2],
            "f": [float("nan"), 0.5, 1, 1, 1, 1],
            "g": pd.arrays.ArrowExtensionArray(pa.array([float("nan"), *[1.0] * 5])),
            "t": [pd.NaT, *[pd.Timestamp("2026-11-20 08:30:00.000000999", tz="America/New_York")] * 5],
        }
    )
    with pytest.raises(FrameWriteError, match=r"2 rows failed with .*: key column k is null") as caught:
        await people.load(frame, key="k")
    assert ([key for key, _ in caught.value.failures], caught.value.written) == ([None, None], 4)
    found = await people.get_many(["nan", "nat", "na", "none"])
    assert [value["v"] for value in found.values()] == [None] * 4
    assert (found["nan"]["f"], found["nat"]["f"], found["nan"]["g"]) == (None, 0.5, None)
    assert (found["nan"]["t"], found["nat"]["t"]) == (None, "2026-11-20T13:30:00.000000Z")
    looked_up = await people.enrich(frame[["k"]], on="k", columns=["f", "t"])
    assert [_or_none(value) for value in looked_up["f"]] == [None, 0.5, 1, 1, None, None]


INFERRED: dict[str, tuple[list[Any], pa.DataType]] = {
    "integers": ([1, EXACT, None], pa.int64()),
    "integers beside doubles": ([1, 0.5, EXACT], pa.float64()),
    "times stay texts": (["2026-11-20T08:30:00Z", "x"], pa.string()),
    "lists": ([[1], [0.5, None], []], pa.list_(pa.float64())),
    "objects": (
        [{"a": 1}, {"b": [{"c": True}], "a": 0.5}, {}],
        pa.struct([("a", pa.float64()), ("b", pa.list_(pa.struct([("c", pa.bool_())])))]),
    ),
}
"""The values of a member and their common type."""


@pytest.mark.parametrize("case", INFERRED)
async def test_a_member_without_a_schema_has_the_type_that_fits_all_values(people: Any, case: str) -> None:
    values, wanted = INFERRED[case]
    await load_members(people, {f"k{at}": value for at, value in enumerate(values)})
    keys = pa.table({"k": [f"k{at}" for at in range(len(values))]})
    for found in (await people.enrich(keys, on="k", columns=["v"]), (await people.scan_frame()).sort_by("key")):
        expected = [float(v) for v in values] if wanted == pa.float64() else pa.array(values, wanted).to_pylist()
        assert found["v"].to_pylist() == expected
        assert found["v"].type == wanted


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, 0.5, "geheim"], 'column v is a JSON string for key "k2", but a JSON number for another'),
        (["geheim", True], 'column v is a JSON boolean for key "k1", but a JSON string for another'),
    ],
)
async def test_values_without_a_common_type_are_an_error_with_column_and_key(
    people: Any, values: list[Any], found: str
) -> None:
    await load_members(people, {f"k{at}": value for at, value in enumerate(values)})
    keys = pa.table({"k": [f"k{at}" for at in range(len(values))]})
    with pytest.raises(ValueError, match=re.escape(found)) as caught:
        await people.enrich(keys, on="k", columns=["v"])
    assert "\n" not in str(caught.value)
    assert "geheim" not in str(caught.value)
    texts = await people.enrich(keys, on="k", schema={"v": "string"})
    assert texts["v"].to_pylist() == [v if isinstance(v, str) else json.dumps(v, separators=(",", ":")) for v in values]


@pytest.mark.parametrize("read", ["enrich", "scan_frame"])
async def test_a_value_that_does_not_fit_the_schema_fails_or_is_null(people: Any, name: str, read: str) -> None:
    await people.load([("a", {"n": 1}), ("b", {"n": "geheim", "m": 2})])
    schema = pa.schema([("n", pa.int8()), ("m", pa.int64())])

    async def call(**options: Any) -> Any:
        if read == "scan_frame":
            return (await people.scan_frame(schema, **options)).sort_by("key")
        return await people.enrich(pa.table({"key": ["a", "b"]}), on="key", schema=schema, **options)

    message = (
        f'table {name}: column n is a JSON string for key "b", which does not fit int8; '
        'correct the record or the schema, or set on_mismatch to "null"'
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        await call()
    found = await call(on_mismatch="null")
    assert found.to_pylist() == [{"key": "a", "n": 1, "m": None}, {"key": "b", "n": None, "m": 2}]


def test_a_schema_as_text_has_the_types_of_spark() -> None:
    text = "`a, ``b` tinyint, c: SMALLINT,d timestamp, l timestamp_ntz, s array<struct<x: int, y: map<string, date>>>"
    nested = pa.list_(pa.struct({"x": pa.int32(), "y": pa.map_(pa.string(), pa.date32())}))
    times = {"d": pa.timestamp("us", "UTC"), "l": pa.timestamp("us")}
    assert arrow_schema(text).equals(pa.schema({"a, `b": pa.int8(), "c": pa.int16(), **times, "s": nested}))


ONE = pa.table({"k": ["a"], "n": [1], "f": [0.5], "b": [b"x"]})
TWICE = pa.table([["a"], ["b"]], names=["k", "k"])
REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no frame": (lambda t: t.enrich([1], "k", columns=["v"]), TypeError, "a frame must be a .*, not list"),
    "a lazy frame": (lambda t: t.load(pl.LazyFrame({"k": ["a"]}), key="k"), TypeError, r"call collect\(\)"),
    "a name twice": (lambda t: t.enrich(TWICE, "k", columns=["v"]), ValueError, "two columns are named 'k'"),
    "a member of the frame": (lambda t: t.enrich(ONE, "k", columns=["n"]), ValueError, "two columns are named 'n'"),
    "no key column": (lambda t: t.enrich(ONE, "x", columns=["v"]), ValueError, "no column 'x'; it has k, n, f, b"),
    "a type": (lambda t: t.enrich(ONE, "k", schema={"v": "int65"}), ValueError, "'int65', which is not a type"),
    "null without a schema": (lambda t: t.scan_frame(on_mismatch="null"), ValueError, "on_mismatch needs schema="),
    "a frame without key": (lambda t: t.load(ONE), TypeError, "load of a frame needs key="),
    "binary": (lambda t: t.load(ONE, key="k"), ValueError, "column b is binary: JSON cannot represent it"),
    "an order": (lambda t: t.load(ONE.drop_columns("b"), "k", "f"), ValueError, "order is double: it must be an"),
    "an operand": (lambda t: t.update_frame(ONE, "k", {"$inc": {"n": col("k")}}), ValueError, "inc n does not accept"),
    "no column": (lambda t: t.update_frame(ONE, "k", {"n": col("x")}), ValueError, "the frame has no column 'x'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_an_argument_that_is_not_valid_is_refused_before_anything_is_sent(people: Any, case: str) -> None:
    call, failure, message = REFUSED[case]
    await people.put("a", {"n": 1})
    with pytest.raises(failure, match=message) as caught:
        await call(people)
    assert "\n" not in str(caught.value)
    assert await people.get("a") == {"n": 1}


async def test_an_absent_table_is_an_error_of_reads_and_made_by_writes(people: Any) -> None:
    for call in (people.enrich(ONE, "k", columns=["v"]), people.scan_frame()):
        with pytest.raises(TableNotFound):
            await call
    for empty in (frame_of(kind, ONE.select(["k", "n"]).slice(1)) for kind in KINDS):
        assert await people.load(empty, key="k") == await people.update_frame(empty, "k", {"n": col("n")}) == 0
    assert await people.load(ONE.select(["k", "n"]), key="k") == 1
    assert (await people.scan_frame()).to_pylist() == [{"key": "a", "n": 1}]
    for keys in ([], [None], [float("nan"), pd.NA]):
        assert (await people.enrich(pd.DataFrame({"k": keys}), "k", schema="n int"))["n"].isna().all()


@pytest.mark.parametrize("kind", KINDS)
async def test_keys_come_first_and_have_the_names_of_the_configuration(
    opened: Callable[..., Any], keyed_url: str, kind: str
) -> None:
    client = await opened(keyed_url)
    numbers, pairs = client.table("numbers"), client.table("pairs")
    await pairs.delete_all(everything=True)
    assert rows_of(await pairs.scan_frame(kind=kind)) == []
    assert list(rows_of(await pairs.scan_frame({"v": "int64"}, kind))) == []
    table = pa.table({"day": [2, 1, 2], "v": [3, 1, 2], "user": ["b", "a", "a"]})
    assert await pairs.load(frame_of(kind, table), key=["day", "user"]) == 3
    for options in ({}, {"schema": {"v": "int64"}}):
        found = await pairs.scan_frame(**options, kind=kind, partition="a")
        assert [list(row.items()) for row in rows_of(found)] == [
            [("user", "a"), ("day", 1), ("v", 1)],
            [("user", "a"), ("day", 2), ("v", 2)],
        ]
    keys = frame_of(kind, pa.table({"at": [2, 1, None, 2], "who": ["a", "b", "a", "b"]}))
    found = await pairs.enrich(keys, on=["who", "at"], columns=["v"])
    assert [row["v"] for row in rows_of(found)] == [2, None, None, 3]
    await numbers.load(frame_of(kind, pa.table({"n": [EXACT], "id": pa.array([7], pa.uint8())})), key="id")
    assert (7, EXACT) in [(row["id"], row["n"]) for row in rows_of(await numbers.scan_frame(kind=kind))]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_last_row_of_a_key_is_loaded_or_that_with_the_highest_order(people: Any, kind: str) -> None:
    count = 12_000
    table = pa.table({"k": [f"k{at % 6_000}" for at in range(count)], "v": range(count)})
    assert await people.load(frame_of(kind, table), key="k") == count
    assert (await people.get_many(["k0", "k5999"])) == {"k0": {"v": 6_000}, "k5999": {"v": 11_999}}
    days = [DAY + dt.timedelta(days=1)] * 2 + [DAY] * 2
    ordered = frame_of(kind, pa.table({"k": list("aaab"), "at": pa.array(days, pa.date32()), "v": range(4)}))
    assert await people.load(ordered, key="k", order="at") == 4
    assert (await people.get("a"))["v"] == 1
    micros = int(dt.datetime(2026, 11, 20, tzinfo=dt.UTC).timestamp()) * 1_000_000
    assert (await people.put("b", {}, order=micros - 1)).superseded
    assert not (await people.put("b", {}, order=micros)).superseded


async def test_rows_without_json_fail_alone_and_the_message_counts_them(people: Any, name: str) -> None:
    table = pa.table(
        {
            "k": ["a", "b", None, "", "c", "d"],
            "v": [1.0, float("nan"), 1.0, 1.0, float("inf"), 2.0],
            "t": pa.array([0, 0, 0, 0, 0, 2**60], pa.timestamp("us")),
        }
    )
    with pytest.raises(FrameWriteError) as caught:
        await people.load(table, key="k")
    error = caught.value
    assert isinstance(error, LoadError)
    assert [key for key, _ in error.failures] == ["b", None, "", "c", "d"]
    details = [failure.detail for _, failure in error.failures]
    assert details[0] == details[3] == "column v contains a NaN or an infinity"
    assert details[1] == "key column k is null"
    assert details[4] == "column t contains a time outside of the years 1 to 9999 in UTC"
    start = f'table {name}: 5 rows failed with invalid_operation; the first has the key "b": column v contains a NaN'
    assert str(error).startswith(start)
    assert (error.code, error.written, error.unsent, await people.get_many(list("abcd"))) == (
        "invalid_operation", 1, 0, {"a": {"v": 1, "t": "1970-01-01T00:00:00.000000"}},
    )  # fmt: skip
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_updates_of_a_key_apply_in_the_order_of_the_rows(people: Any, kind: str) -> None:
    hot, count = 5_000, 6_000
    keys = ["hot"] * hot + [f"k{at}" for at in range(count)]
    total = hot + count
    table = pa.table({"k": keys, "n": range(total), "s": [TEXT] * total, "l": [["x", "y"]] * total})
    frame = frame_of(kind, table)
    update = [
        {"$push": {"list": {"$each": [col("n")]}, "pairs": {"$each": [[col("n"), 1]], "$slice": -1}}},
        {"$addToSet": {"tags": {"$each": col("l")}}, "$unset": ["none"]},
        {"$set": {"last.at": {"n": [col("n")], "s": col("s")}}, "$inc": {"sum": col("n")}},
        {"patch": {"n": col("n"), "none": None, "deep": {}}},
    ]
    default = {"sum": 1, "first": col("n")}
    assert await people.update_frame(frame, "k", update, default=default) == total
    found = await people.get_many(["hot", "k5999"])
    last = total - 1
    for key, numbers in (("hot", range(hot)), ("k5999", [last])):
        assert found[key] == {
            "list": list(numbers),
            "pairs": [[numbers[-1], 1]],
            "tags": ["x", "y"],
            "sum": 1 + sum(numbers),
            "first": numbers[0],
            "last": {"at": {"n": [numbers[-1]], "s": TEXT}},
            "patch": {"n": numbers[-1], "deep": {}},
        }


async def test_a_failed_row_of_an_update_leaves_the_other_rows_and_keys(people: Any, name: str) -> None:
    await people.load([("a", {"n": 1}), ("text", {"n": "x"})])
    table = pa.table({"k": ["a", "a", "text", "absent", "a"], "n": [1, None, 1, 1, 5]})
    with pytest.raises(FrameWriteError) as caught:
        await people.update_frame(table, "k", {"$inc": {"n": col("n")}})
    failures = [(key, failure.code) for key, failure in caught.value.failures]
    assert failures == [("a", "invalid_operation"), ("text", "invalid_operation"), ("absent", "record_not_found")]
    assert "$inc n: the operand is null; filter such rows" in str(caught.value)
    counts = '2 rows failed with invalid_operation, 1 with record_not_found; the first has the key "a"'
    assert counts in str(caught.value)
    assert "Part of the write may have been applied: 2 rows were applied" in str(caught.value)
    assert await people.get("a") == {"n": 7}


async def test_an_update_counts_once_after_lost_responses_and_with_its_token(
    opened: Callable[..., Any], service: Service, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"k": ["a", "b", "a"] * 2_000, "n": [1] * 6_000})
    update, default, read = {"$inc": {"n": col("n")}}, {"n": 0}, ArrowTables.columns
    async with FaultProxy("127.0.0.1", int(service.url.rpartition(":")[2])) as proxy:
        people = (await opened(f"http://127.0.0.1:{proxy.port}")).table(name)
        await people.put("warm", {})

        def columns(*arguments: Any) -> Any:  # after the table has been described
            proxy.answer_lost(once=True)
            return read(*arguments)

        before = batches(service.url)
        with monkeypatch.context() as patch:
            patch.setattr(ArrowTables, "columns", columns)
            await people.update_frame(table, "k", update, default=default)
        assert batches(service.url) - before > 1
    people = (await opened()).table(name)
    assert await people.get("a") == {"n": 4_000}
    for expected in (4_000 * 2, 4_000 * 2):
        await people.update_frame(table, "k", update, default=default, token="flights/2026-11-20")
        assert await people.get("a") == {"n": expected}
    with pytest.raises(ValueError, match="128"):
        await people.update_frame(table, "k", update, token="x" * 129)


async def test_a_request_has_at_most_the_keys_that_the_service_allows(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {s: {kind: memory}}\ntables: {t: {store: s}}\nlimits: {operations_max: 700}\n")
    with running(tmp_path, config) as service:
        people = (await opened(service.url)).table("t")
        frame = pa.table({"k": [f"k{at % 2_000}" for at in range(10_000)], "n": range(10_000)})
        for call in (
            partial(people.load, frame, "k"),
            partial(people.update_frame, frame, "k", {"m": col("n")}, default={}),
            partial(people.enrich, frame, "k", columns=["m"]),
        ):
            before = batches(service.url)
            await call()
            assert batches(service.url) - before == 3


async def test_a_failed_part_of_a_key_fails_its_later_rows_only(people: Any) -> None:
    await people.load([("hot", {"n": 0}), ("b", {"n": 0})])
    sums = [2**62, 2**62, *[1] * 3_000]  # the first part overflows
    table = pa.table({"k": ["hot"] * len(sums) + ["b"] * 3_000, "n": sums + [1] * 3_000})
    with pytest.raises(FrameWriteError) as caught:
        await people.update_frame(table, "k", {"$inc": {"n": col("n")}}, token="run")
    error = caught.value
    assert ({key for key, _ in error.failures}, len(error.failures), error.written) == ({"hot"}, len(sums), 3_000)
    assert await people.get_many(["hot", "b"]) == {"hot": {"n": 0}, "b": {"n": 3_000}}
    assert "Part of the write" not in str(error)


async def test_a_write_stops_after_a_temporary_failure(opened: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {s: {kind: memory}}\ntables: {t: {store: s, write: {rate_per_s: 100}}}\n")
    rows = 60_000
    with running(tmp_path, config) as service:
        people = (await opened(service.url, retries=Retries(attempts_max=1))).table("t")
        with pytest.raises(FrameWriteError) as caught:
            await people.load(pa.table({"k": range(rows)}).cast(pa.schema({"k": pa.string()})), key="k")
    error = caught.value
    assert (error.code, error.retriable) == ("throttled", True)
    assert error.unsent >= rows - 8 * 5_000
    assert error.written + len(error.failures) + error.unsent == rows
