"""The command `scan` in its formats."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from tableside_client import Client

pytestmark = pytest.mark.server
Command = Callable[..., Result]

RECORDS: dict[str, dict[str, Any]] = {
    "a": {"name": 'Ann, "A"\nB', "age": 41, "tags": ["x", "ü"], "home": {"city": "Bonn"}, "mixed": 1},
    "b": {"name": None, "age": 1.5, "flag": True, "mixed": "one", "none": {}},
    "c": {"later": 2**60 + 1},
}
"""No record has all members, and only the last one has the last member."""


@pytest.fixture
def scan(client: Client, tableside: Command) -> Command:
    client.table("scanned").load(RECORDS.items())
    return lambda *arguments: tableside("scan", *arguments)


def test_csv_has_a_column_for_every_member_of_any_record(scan: Command) -> None:
    done = scan("scanned", "--format", "csv")
    assert done.stdout.splitlines()[0] == "key,name,age,tags,home,mixed,flag,none,later,_ts_record"
    first, second, third = csv.DictReader(io.StringIO(done.stdout))
    assert (first["key"], first["name"], first["age"], first["flag"]) == ("a", RECORDS["a"]["name"], "41", "")
    assert (json.loads(first["tags"]), json.loads(first["home"])) == (["x", "ü"], {"city": "Bonn"})
    assert (second["name"], second["flag"], second["none"]) == ("", "true", "{}")
    assert third["later"] == str(2**60 + 1)


def test_fields_choose_the_columns_and_their_order(scan: Command) -> None:
    done = scan("scanned", "--format", "csv", "--fields", "age,absent,name", "--limit", "1")
    assert done.stdout == 'key,age,absent,name,_ts_record\na,41,,"Ann, ""A""\nB",{}\n'
    lines = scan("scanned", "--fields", "age", "--prefix", "a").stdout.splitlines()
    assert [json.loads(line)["value"] for line in lines] == [{"age": 41}]
    scan("scanned", "--format", "parquet", "--fields", "age", "--output", "p.parquet")
    assert pq.read_table("p.parquet").to_pylist()[1] == {"key": "b", "age": 1.5, "_ts_record": "{}"}


def test_parquet_columns_have_types_if_all_values_agree_else_json_text(scan: Command) -> None:
    assert scan("scanned", "--format", "parquet", "--output", "p.parquet").exit_code == 0
    table = pq.read_table("p.parquet")
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


def test_the_output_goes_to_a_file_which_is_replaced_only_when_complete(scan: Command, tmp_path: Path) -> None:
    file = tmp_path / "out"
    printed = scan("scanned").stdout
    done = scan("scanned", "--output", file)
    assert (done.stdout, file.read_text(encoding="utf-8")) == ("", printed)
    assert scan("no_such_table", "--format", "csv", "--output", file).exit_code == 1
    assert file.read_text(encoding="utf-8") == printed
    assert list(tmp_path.iterdir()) == [file]
    assert scan("scanned", "--output", "/dev/null").exit_code == 0
    for options in ((), ("--format", "parquet")):
        refused = scan("scanned", *options, "--output", tmp_path / "none" / "out")
        assert (refused.exit_code, refused.stderr) == (1, f"tableside: the directory {tmp_path}/none does not exist\n")


def test_a_member_with_the_name_of_the_keys_column_is_refused(client: Client, tableside: Command) -> None:
    client.table("scanned_conflict").put("a", {"key": 1})
    done = tableside("scan", "scanned_conflict", "--format", "csv")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "'key'" in done.stderr


def test_more_columns_than_allowed_are_refused(client: Client, tableside: Command) -> None:
    client.table("scanned_wide").put("a", {f"m{number}": 1 for number in range(999)})
    assert tableside("scan", "scanned_wide", "--format", "csv").exit_code == 0
    client.table("scanned_wide").put("b", {"more": 1})
    done = tableside("scan", "scanned_wide", "--format", "csv")
    assert done.exit_code == 1
    assert "more than 1,000 columns: choose some with --fields" in done.stderr
    assert tableside("scan", "scanned_wide", "--format", "csv", "--fields", "more").exit_code == 0


def test_composite_keys_and_partitions_are_columns(configured: Client, tableside: Command) -> None:
    def scanned(table: str, key: Any, form: str, **options: Any) -> list[str]:
        configured.table(table).batch([{"op": "put", "key": key, "value": {"n": 1}, **options}])
        return sorted(tableside("scan", table, "--format", form, url=configured.url).stdout.splitlines())

    assert scanned("pairs", ["u", 1], "csv") == ["u,1,1,{}", "user,day,n,_ts_record"]
    rows = [f'k,{index},1,"{{""partitions"": 2}}"' for index in (0, 1)]
    assert scanned("unnamed", "k", "csv", partitions="all") == [*rows, "key,partition,n,_ts_record"]
    lines = scanned("partitioned", ["k", 1], "jsonl", partitions="all")
    assert [(record["key"], record["partition"]) for record in map(json.loads, lines)] == [(["k", 1], 0), (["k", 1], 1)]
