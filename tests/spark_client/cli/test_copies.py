"""A file of `scan`, loaded into another table: the same records, with their types, expiry and partitions."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from support.kinds import EVERY, kind
from support.running import Service, running
from support.waiting import until
from tableside_cli import app
from tableside_client import Client, Record

pytestmark = pytest.mark.server

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

CONFIG = """
stores: {a: {kind: memory}, b: {kind: memory}, both: {kind: partitioned, partitions: [a, b]}}
tables:
  pairs: {store: a, key: {user: string, day: integer}}
  pairs_copy: {store: a, key: {who: string, at: integer}}
  copies: {store: both, key: {user: string, day: integer}}
  copies_copy: {store: both, key: {user: string, day: integer}}
  plain: {store: a, key: {user: string, day: integer}}
  ordered: {store: a, key: {user: string, day: integer}}
  short: {store: a, ttl_s: 100}
  source: {store: a}
"""


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("configured")
    (directory / "c.yaml").write_text(CONFIG)
    with running(directory, directory / "c.yaml") as service:
        yield service


@pytest.fixture(scope="module", params=EVERY)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the tables `t` and `u` in one store."""
    directory = tmp_path_factory.mktemp(request.param)
    used = kind(request.param, request, directory)
    config, other = used.configuration(), used.configuration()
    config["tables"]["u"] = other["tables"]["t"]
    (directory / "c.yaml").write_text(json.dumps(config))
    with running(directory, directory / "c.yaml", environment=used.environment) as service:
        yield service


def run(service: Service, *arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--url", service.url])


def copy(service: Service, source: str, target: str, file: Path, *options: str) -> Result:
    """Scan one table to a file, and load it into another one."""
    scanned = run(service, "scan", source, "--format", file.suffix[1:], "--output", file)
    assert scanned.exit_code == 0, scanned.stderr
    return run(service, "load", target, file, *options)


def write(service: Service, table: str, operations: list[dict[str, Any]]) -> None:
    answer = httpx.post(f"{service.url}/v1/tables/{table}/batch", json={"operations": operations}).raise_for_status()
    assert not [result for result in answer.json()["results"] if "error" in result]


def put(key: Any, value: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    return {"op": "put", "key": key, "value": value, **options}


def records(service: Service, table: str) -> dict[Any, Record[dict[str, Any]]]:
    with Client(service.url) as client:
        return {(record.key, record.partition): record for record in client.table(table).scan()}


def texts(found: Mapping[Any, Record[dict[str, Any]]]) -> dict[Any, str]:
    """The values as texts, because Python's 1 equals 1.0 and True."""
    return {key: json.dumps(record.value, sort_keys=True) for key, record in found.items()}


@pytest.mark.parametrize("form", FORMATS)
def test_a_copy_has_the_same_values_and_expiry(stored: Service, tmp_path: Path, form: str) -> None:
    with Client(stored.url) as client:
        expires = client.table("t").describe()["capabilities"]["ttl"]
    lives = {"b": {"ttl_s": 1000}} if expires else {}
    write(stored, "t", [put(key, value, **lives.get(key, {})) for key, value in RECORDS.items()])
    write(stored, "u", [{"op": "delete", "key": key} for key in RECORDS])
    done = copy(stored, "t", "u", tmp_path / f"t.{form}", "--key", "key")
    assert done.stdout == f"{len(RECORDS)} records stored in u, 0 failed\n"
    source, copied = records(stored, "t"), records(stored, "u")
    assert len(copied) == len(RECORDS)
    assert texts(copied) == texts(source)
    assert {key for (key, _), record in copied.items() if record.expires_at} == lives.keys()
    if expires:
        then, now = (datetime.fromisoformat(found["b", None].expires_at or "") for found in (source, copied))
        assert abs((now - then).total_seconds()) < 30


def test_a_record_that_expired_after_the_scan_is_not_loaded(service: Service, tmp_path: Path) -> None:
    write(service, "copies_gone", [put("a", {}), put("gone", {}, ttl_s=5)])
    files = [tmp_path / f"t.{form}" for form in FORMATS]
    for file in files:
        run(service, "scan", "copies_gone", "--format", file.suffix[1:], "--output", file)
    until(lambda: len(records(service, "copies_gone")) == 1)
    for file in files:
        done = run(service, "load", "copies_left", file)
        assert (done.exit_code, done.stdout) == (0, "1 records stored in copies_left, 0 failed, 1 expired\n")
    assert records(service, "copies_left").keys() == {("a", None)}


@pytest.mark.parametrize("form", FORMATS)
def test_composite_keys_and_partitions_are_copied(configured: Service, tmp_path: Path, form: str) -> None:
    keys = [["u,1", 1], ["2", -5]]
    write(configured, "pairs", [put(key, {"n": key[1]}) for key in keys])
    names = [] if form == "jsonl" else ["--key", "user", "--key", "day"]
    done = copy(configured, "pairs", "pairs_copy", tmp_path / f"p.{form}", *names)
    assert done.stdout == "2 records stored in pairs_copy, 0 failed\n"
    assert texts(records(configured, "pairs_copy")) == texts(records(configured, "pairs"))
    write(configured, "copies", [put(key, {"n": index}, partitions=[index]) for key in keys for index in (0, 1)])
    done = copy(configured, "copies", "copies_copy", tmp_path / f"c.{form}")
    assert done.stdout == "4 records stored in copies_copy, 0 failed\n"
    assert texts(records(configured, "copies_copy")) == texts(records(configured, "copies"))


def test_the_parts_of_a_key_are_not_exchanged(configured: Service, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("day,user,n\n7,ada,1\n")
    refused = run(configured, "load", "ordered", tmp_path / "rows.csv", "--key", "day", "--key", "user")
    assert refused.exit_code == 2
    assert "the parts of the key are in the order user, day" in refused.stderr
    assert run(configured, "load", "ordered", tmp_path / "rows.csv", "--key", "user", "--key", "day").exit_code == 0


@pytest.mark.parametrize("form", FORMATS)
def test_a_partition_is_not_lost_silently(configured: Service, tmp_path: Path, form: str) -> None:
    write(configured, "copies", [put(["u", 1], {}, partitions="all")])
    done = copy(configured, "copies", "plain", tmp_path / f"c.{form}")
    assert done.exit_code == 1
    assert "a table with 2 partitions, and this table has none: remove partition from the file" in done.stderr
    assert not records(configured, "plain")


@pytest.mark.parametrize("form", FORMATS)
def test_a_copy_does_not_get_the_default_expiry_of_its_table(configured: Service, tmp_path: Path, form: str) -> None:
    write(configured, "source", [put("a", {"n": 1})])
    assert copy(configured, "source", "short", tmp_path / f"s.{form}").exit_code == 0
    (tmp_path / "rows.jsonl").write_text('{"key": "b", "value": {"n": 1}}\n')
    assert run(configured, "load", "short", tmp_path / "rows.jsonl", "--key", "key").exit_code == 0
    found = records(configured, "short")
    assert found["a", None].expires_at is None
    assert found["b", None].expires_at is not None


def test_rows_that_are_not_records_of_a_scan_are_values(service: Service, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"key": "a", "value": {"n": 1}},
        {"key": "b", "value": 1, "etag": "x"},
        {"key": "c", "value": {"n": 1}, "etag": "x", "more": 1},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(service, "load", "copies_rows", tmp_path / "rows.jsonl", "--key", "key").exit_code == 0
    found = {key: record.value for (key, _), record in records(service, "copies_rows").items()}
    assert found == {row.pop("key"): row for row in rows}


def test_a_frame_of_records_is_recognized_too(service: Service, tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["a"], "value": [{"n": 1}], "etag": ["x"]}), tmp_path / "rows.parquet")
    assert run(service, "load", "copies_frame", tmp_path / "rows.parquet").exit_code == 0
    assert records(service, "copies_frame")["a", None].value == {"n": 1}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"key": "a", "value": {}, "etag": null, "expires_at": "soon"}', "expires_at is not a time"),
        ('{"key": "a", "value": {}, "etag": null, "expires_at": 5}', "expires_at is not a time"),
        ('{"key": ["a", 1], "value": {}, "etag": null}', "the key has 2 parts, not 1"),
        ('{"key": {}, "value": {}, "etag": null}', "the key field 'key' is neither a string nor an integer"),
        ('{"key": "a", "_ts_record": 5}', "the column _ts_record is not as tableside scan writes it"),
        ('{"key": "a", "_ts_record": "{\\"null\\": [5]}"}', "the column _ts_record is not as tableside scan writes it"),
        ('{"key": "a", "_ts_record": "{\\"more\\": 5}"}', "the column _ts_record is not as tableside scan writes it"),
        ('{"key": "a", "_ts_record": "{\\"null\\": 5}"}', "the column _ts_record is not as tableside scan writes it"),
    ],
)
def test_a_damaged_record_of_a_scan_is_named(service: Service, tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "rows.jsonl").write_text(line)
    done = run(service, "load", "copies_damaged", tmp_path / "rows.jsonl")
    assert done.exit_code == 1
    assert f"row 1: {fault}" in done.stderr
