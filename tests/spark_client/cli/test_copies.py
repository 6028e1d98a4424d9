"""A file of `scan`, loaded into another table: the same records, with their types, expiry and partitions."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from support.waiting import until
from tableside_client import Client, Record

pytestmark = pytest.mark.server
Command = Callable[..., Result]

FORMATS = ("jsonl", "csv", "parquet")

RECORDS: dict[str, dict[str, Any]] = {
    "a": {"a": 'Ann, "A"\r\nB\rC\nD', "n": 41, "b": ["x", "ü", None, {}], "c": {"city": "Bonn", "zip": None}},
    "b": {"a": None, "n": 1.5, "b": [], "c": {}, "d": "", "made": True},
    "c": {"a": "null", "n": -(2**63), "c": {"city": "Rome"}, "d": "01234", "size": "12"},
    "d": {"a": "[1]", "n": 1e100, "d": " 1", "made": False, "name with": '"'},
    "true": {"a": "2026-11-20 08:00:00", "n": 2**53 + 1, "d": "1e5", "size": "7"},
    "007": {},
}
"""In each format, some member of these needs more than the text or the type of its column."""


@pytest.fixture
def copy(tableside: Command) -> Command:
    """Scan a table to a file, and load it into another one."""

    def run(client: Client, source: str, target: str, form: str, *options: str) -> Result:
        scanned = tableside("scan", source, "--format", form, "--output", f"t.{form}", url=client.url)
        assert scanned.exit_code == 0, scanned.stderr
        return tableside("load", target, f"t.{form}", *options, url=client.url)

    return run


def put(key: Any, value: Any, **options: Any) -> dict[str, Any]:
    return {"op": "put", "key": key, "value": value, **options}


def write(client: Client, table: str, operations: list[dict[str, Any]]) -> None:
    assert not [outcome.error for outcome in client.table(table).batch(operations) if outcome.error]


def records(client: Client, table: str) -> dict[Any, Record[dict[str, Any]]]:
    return {(record.key, record.partition): record for record in client.table(table).scan()}


def texts(client: Client, table: str) -> dict[Any, str]:
    """The values as texts, because Python's 1 equals 1.0 and True."""
    return {key: json.dumps(record.value, sort_keys=True) for key, record in records(client, table).items()}


@pytest.mark.parametrize("form", FORMATS)
def test_a_copy_has_the_same_values_and_expiry(configured: Client, copy: Command, form: str) -> None:
    write(configured, "t", [put(key, value) for key, value in RECORDS.items()])
    write(configured, "t", [put("b", RECORDS["b"], ttl_s=1000)])
    write(configured, "u", [{"op": "delete", "key": key} for key in RECORDS])
    done = copy(configured, "t", "u", form, "--key", "key")
    assert done.stdout == f"{len(RECORDS)} records stored in u, 0 failed\n"
    assert texts(configured, "u") == texts(configured, "t")
    source, copied = records(configured, "t"), records(configured, "u")
    assert [key for (key, _), record in copied.items() if record.expires_at] == ["b"]
    then, now = (datetime.fromisoformat(found["b", None].expires_at or "") for found in (source, copied))
    assert abs((now - then).total_seconds()) < 30


def test_a_record_that_expired_after_the_scan_is_not_loaded(client: Client, tableside: Command) -> None:
    write(client, "copies_gone", [put("a", {}), put("gone", {}, ttl_s=5)])
    for form in FORMATS:
        tableside("scan", "copies_gone", "--format", form, "--output", f"t.{form}")
    until(lambda: len(records(client, "copies_gone")) == 1)
    for form in FORMATS:
        done = tableside("load", "copies_left", f"t.{form}")
        assert (done.exit_code, done.stdout) == (0, "1 records stored in copies_left, 0 failed, 1 expired\n")
    assert records(client, "copies_left").keys() == {("a", None)}


@pytest.mark.parametrize("form", FORMATS)
def test_composite_keys_and_partitions_are_copied(configured: Client, copy: Command, form: str) -> None:
    keys = [["u,1", 1], ["2", -5]]
    write(configured, "pairs", [put(key, {"n": key[1]}) for key in keys])
    done = copy(configured, "pairs", "renamed", form, *([] if form == "jsonl" else ["--key", "user", "--key", "day"]))
    assert done.stdout == "2 records stored in renamed, 0 failed\n"
    assert texts(configured, "renamed") == texts(configured, "pairs")
    write(configured, "partitioned", [put(key, {"n": place}, partitions=[place]) for key in keys for place in (0, 1)])
    done = copy(configured, "partitioned", "partitioned_copy", form)
    assert done.stdout == "4 records stored in partitioned_copy, 0 failed\n"
    assert texts(configured, "partitioned_copy") == texts(configured, "partitioned")


def test_the_parts_of_a_key_are_not_exchanged(configured: Client, tableside: Command) -> None:
    Path("rows.csv").write_text("day,user,n\n7,ada,1\n")
    refused = tableside("load", "pairs", "rows.csv", "--key", "day", "--key", "user", url=configured.url)
    assert refused.exit_code == 2
    assert "the parts of the key are in the order user, day" in refused.stderr
    assert tableside("load", "pairs", "rows.csv", "--key", "user", "--key", "day", url=configured.url).exit_code == 0


@pytest.mark.parametrize("form", FORMATS)
def test_a_partition_is_not_lost_silently(configured: Client, copy: Command, form: str) -> None:
    write(configured, "unnamed", [put("u", {}, partitions="all")])
    done = copy(configured, "unnamed", "plain", form)
    assert done.exit_code == 1
    assert "a table with 2 partitions, and this table has none: remove partition from the file" in done.stderr
    assert "plain" not in [table["name"] for table in configured.tables()]


@pytest.mark.parametrize("form", FORMATS)
def test_a_copy_does_not_get_the_default_expiry_of_its_table(
    configured: Client, copy: Command, tableside: Command, form: str
) -> None:
    write(configured, "source", [put("a", {"n": 1})])
    assert copy(configured, "source", "short", form).exit_code == 0
    Path("rows.jsonl").write_text('{"key": "b", "value": {"n": 1}}\n')
    assert tableside("load", "short", "rows.jsonl", "--key", "key", url=configured.url).exit_code == 0
    found = records(configured, "short")
    assert found["a", None].expires_at is None
    assert found["b", None].expires_at is not None


def test_rows_that_are_not_records_of_a_scan_are_values(client: Client, tableside: Command) -> None:
    rows: list[dict[str, Any]] = [
        {"key": "a", "value": {"n": 1}},
        {"key": "b", "value": 1, "etag": "x"},
        {"key": "c", "value": {"n": 1}, "etag": "x", "more": 1},
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert tableside("load", "copies_rows", "rows.jsonl", "--key", "key").exit_code == 0
    found = {key: record.value for (key, _), record in records(client, "copies_rows").items()}
    assert found == {row.pop("key"): row for row in rows}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"key": "a", "value": {}, "etag": null, "expires_at": "soon"}', "expires_at is not a time"),
        ('{"key": "a", "_ts_record": 5}', "the column _ts_record is not as tableside scan writes it"),
        ('{"key": "a", "_ts_record": "{\\"more\\": 5}"}', "the column _ts_record is not as tableside scan writes it"),
    ],
)
def test_a_damaged_record_of_a_scan_is_named(tableside: Command, line: str, fault: str) -> None:
    Path("rows.jsonl").write_text(line)
    done = tableside("load", "copies_damaged", "rows.jsonl")
    assert done.exit_code == 1
    assert f"row 1: {fault}" in done.stderr
