"""The command `scan` in its formats."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from support.running import Service, running
from tableside.cli import record_rows
from tableside.cli.main import app
from tableside.cli.parquet_export import write_parquet

Scan = Callable[..., Result]

RECORDS: dict[str, dict[str, Any]] = {
    "a": {"name": 'Ann, "A"\nB', "age": 41, "tags": ["x", "ü"], "home": {"city": "Bonn"}, "mixed": 1},
    "b": {"name": None, "age": 1.5, "flag": True, "mixed": "one", "none": {}},
    "c": {"later": 2**60 + 1},
}
"""No record has all members, and only the last one has the last member."""

CONFIG = """
stores: {a: {kind: memory}, b: {kind: memory}, both: {kind: partitioned, partitions: [a, b]}}
tables:
  pairs: {store: a, key: {user: string, day: integer}}
  copied: {store: both}
"""


def fill(service: Service, table: str, records: Mapping[str, Any]) -> None:
    for key, value in records.items():
        httpx.put(f"{service.url}/v1/tables/{table}/records/{key}", json=value).raise_for_status()


def scan_of(service: Service) -> Scan:
    return lambda *arguments: CliRunner().invoke(app, ["scan", *map(str, arguments), "--url", service.url])


@pytest.fixture
def scan(service: Service) -> Scan:
    fill(service, "scanned", RECORDS)
    return scan_of(service)


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("configured")
    (directory / "c.yaml").write_text(CONFIG)
    with running(directory, directory / "c.yaml") as service:
        yield service


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.server
def test_csv_has_a_column_for_every_member_of_any_record(scan: Scan) -> None:
    done = scan("scanned", "--format", "csv")
    assert done.stdout.splitlines()[0] == "key,name,age,tags,home,mixed,flag,none,later,_ts_record"
    first, second, third = rows_of(done.stdout)
    assert (first["key"], first["name"], first["age"], first["flag"]) == ("a", RECORDS["a"]["name"], "41", "")
    assert (json.loads(first["tags"]), json.loads(first["home"])) == (["x", "ü"], {"city": "Bonn"})
    assert (second["name"], second["flag"], second["none"]) == ("", "true", "{}")
    assert third["later"] == str(2**60 + 1)


@pytest.mark.server
def test_fields_choose_the_columns_and_their_order(scan: Scan, tmp_path: Path) -> None:
    done = scan("scanned", "--format", "csv", "--fields", "age,absent,name", "--limit", "1")
    assert done.stdout == 'key,age,absent,name,_ts_record\na,41,,"Ann, ""A""\nB",{}\n'
    lines = scan("scanned", "--fields", "age", "--prefix", "a").stdout.splitlines()
    assert [json.loads(line)["value"] for line in lines] == [{"age": 41}]
    scan("scanned", "--format", "parquet", "--fields", "age", "--output", tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet").to_pylist()[1] == {"key": "b", "age": 1.5, "_ts_record": "{}"}


@pytest.mark.server
def test_parquet_columns_have_types_if_all_values_agree_else_json_text(scan: Scan, tmp_path: Path) -> None:
    assert scan("scanned", "--format", "parquet", "--output", tmp_path / "p.parquet").exit_code == 0
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.field("age").type == pa.float64()
    assert table.schema.field("later").type == pa.int64()
    assert table.drop_columns("_ts_record").to_pylist() == [
        {"key": "a", "name": RECORDS["a"]["name"], "age": 41.0, "tags": ["x", "ü"], "home": {"city": "Bonn"}}
        | {"mixed": "1", "flag": None, "none": None, "later": None},
        {"key": "b", "name": None, "age": 1.5, "tags": None, "home": None}
        | {"mixed": '"one"', "flag": True, "none": "{}", "later": None},
        {"key": "c", "name": None, "age": None, "tags": None, "home": None}
        | {"mixed": None, "flag": None, "none": None, "later": 2**60 + 1},
    ]


@pytest.mark.server
def test_the_output_goes_to_a_file_which_is_replaced_only_when_complete(scan: Scan, tmp_path: Path) -> None:
    file = tmp_path / "out"
    printed = scan("scanned").stdout
    done = scan("scanned", "--output", file)
    assert (done.stdout, file.read_text(encoding="utf-8")) == ("", printed)
    assert scan("no_such_table", "--format", "csv", "--output", file).exit_code == 1
    assert file.read_text(encoding="utf-8") == printed
    assert list(tmp_path.iterdir()) == [file]
    for options in ((), ("--format", "parquet")):
        refused = scan("scanned", *options, "--output", tmp_path / "none" / "out")
        assert (refused.exit_code, refused.stderr) == (1, f"tableside: the directory {tmp_path}/none does not exist\n")


@pytest.mark.server
def test_wrong_options_are_refused(scan: Scan) -> None:
    assert scan("scanned", "--format", "parquet").exit_code == 2
    assert scan("scanned", "--format", "xml").exit_code == 2


@pytest.mark.server
def test_a_member_with_the_name_of_the_keys_column_is_refused(service: Service) -> None:
    fill(service, "scanned_conflict", {"a": {"key": 1}})
    done = scan_of(service)("scanned_conflict", "--format", "csv")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "'key'" in done.stderr


@pytest.mark.server
def test_more_columns_than_allowed_are_refused(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_rows, "COLUMNS_MAX", 9)
    assert scan("scanned", "--format", "csv").exit_code == 0
    monkeypatch.setattr(record_rows, "COLUMNS_MAX", 8)
    done = scan("scanned", "--format", "csv")
    assert done.exit_code == 1
    assert "more than 8 columns: choose some with --fields" in done.stderr
    assert scan("scanned", "--format", "csv", "--fields", "age").exit_code == 0


@pytest.mark.server
def test_composite_keys_and_partitions_are_columns(configured: Service, tmp_path: Path) -> None:
    for table, key in (("pairs", ["u", 1]), ("copied", "k")):
        operation: dict[str, Any] = {"op": "put", "key": key, "value": {"n": 1}}
        operation |= {"partitions": "all"} if table == "copied" else {}
        httpx.post(f"{configured.url}/v1/tables/{table}/batch", json={"operations": [operation]}).raise_for_status()
    assert scan_of(configured)("pairs", "--format", "csv").stdout == "user,day,n,_ts_record\nu,1,1,{}\n"
    copied = scan_of(configured)("copied", "--format", "csv").stdout.splitlines()
    assert copied[0] == "key,partition,n,_ts_record"
    assert sorted(copied[1:]) == [f'k,{index},1,"{{""partitions"": 2}}"' for index in (0, 1)]


def test_types_may_differ_between_groups_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tableside.cli import parquet_export

    monkeypatch.setattr(parquet_export, "ROWS_PER_GROUP", 1)
    rows: list[dict[str, Any]] = [
        {"double": 1, "exact": 2**60 + 1, "text": 1, "object": {"a": 1}},
        {"double": 1.5, "exact": 1.5, "text": "x", "object": {"b": [{}]}},
    ]
    write_parquet(list(rows[0]), rows, tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet").to_pylist() == [
        {"double": 1.0, "exact": str(2**60 + 1), "text": "1", "object": '{"a": 1}'},
        {"double": 1.5, "exact": "1.5", "text": '"x"', "object": '{"b": [{}]}'},
    ]
