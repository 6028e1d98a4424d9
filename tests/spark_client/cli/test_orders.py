"""Ordered writes of the command line, against a real service."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import Result

from tableside_cli.records import parse_order
from tableside_client import Client

Command = Callable[..., Result]

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOON_US = 1_795_176_000_000_000
SUPERSEDED = "tableside: superseded: writes with higher orders remain\n"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (-(2**63), -(2**63)),
        ("9223372036854775807", 2**63 - 1),
        ("2026-11-20T12:00:00Z", NOON_US),
        ("2026-11-20T13:00:00.000001+01:00", NOON_US + 1),
        ("2026-11-20 12:00:00", NOON_US),
        ("1969-12-31T23:59:59.999999Z", -1),
    ],
)
def test_an_order_is_an_integer_or_a_time_in_microseconds(order: int | str, expected: int) -> None:
    assert parse_order(order) == expected


@pytest.mark.server
def test_a_superseded_write_says_so_and_shows_the_record(tableside: Command, client: Client) -> None:
    assert tableside("put", "cli_orders", "ada", '{"n": 1, "m": 1}', "--order", "2026-11-20T12:00:00Z").stderr == ""
    late = tableside("put", "cli_orders", "ada", '{"n": 0}', "--order", "-5")
    etag = client.table("cli_orders").record("ada").etag
    assert (late.exit_code, late.stdout, late.stderr) == (0, f"{etag}\n", SUPERSEDED)
    newer = tableside("update", "cli_orders", "ada", '{"n": 2}', "--order", NOON_US + 1)
    assert (json.loads(newer.stdout), newer.stderr) == ({"n": 2, "m": 1}, "")
    older = tableside("update", "cli_orders", "ada", '{"n": 3}', "--order", NOON_US)
    assert (json.loads(older.stdout), older.stderr) == ({"n": 2, "m": 1}, SUPERSEDED)
    assert tableside("delete", "cli_orders", "ada", "--order", "1").stderr == SUPERSEDED
    assert tableside("delete", "cli_orders", "ada", "--order", NOON_US + 2).stderr == ""
    absent = tableside("update", "cli_orders", "ada", '{"n": 3}', "--order", NOON_US)
    assert (absent.exit_code, absent.stdout, absent.stderr) == (0, "", SUPERSEDED)
    assert tableside("delete", "cli_orders", "ada", "--forget").exit_code == 0
    assert tableside("put", "cli_orders", "ada", '{"n": 4}', "--order", "1").stderr == ""


def write_rows(file: Path) -> None:
    """Write the rows a (twice), b and c in the format of a suffix. The order of c is missing."""
    times = pd.to_datetime([NOON, NOON.replace(hour=11), NOON, None])
    frame = pd.DataFrame({"id": ["a", "a", "b", "c"], "n": [2, 1, 1, 1], "at": times})
    match file.suffix:
        case ".csv":
            frame.to_csv(file, index=False)
        case ".jsonl":
            frame.to_json(file, orient="records", lines=True, date_format="iso")
        case ".parquet":
            frame.to_parquet(file, index=False)


@pytest.mark.server
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_load_counts_superseded_rows_and_names_rows_without_an_order(
    tableside: Command, client: Client, tmp_path: Path, suffix: str
) -> None:
    table = client.table(f"load_orders_{suffix}")
    write_rows(tmp_path / f"rows.{suffix}")
    table.put("b", {"n": 9}, order=NOON_US + 1)
    done = tableside("load", table.name, f"rows.{suffix}", "--key", "id", "--order", "at")
    assert (done.exit_code, done.stdout) == (1, f"1 records stored in {table.name}, 1 failed, 2 superseded\n")
    assert done.stderr.startswith("tableside: row 4: the field 'at' is neither an integer within 64 bits nor a time")
    found = table.get_many(["a", "b", "c"])
    assert ({key: value["n"] for key, value in found.items()}, "at" in found["a"]) == ({"a": 2, "b": 9}, True)
    assert table.update("a", {"n": 0}, order=NOON_US - 1).superseded
    assert not table.update("a", {"n": 3}, order=NOON_US).superseded


@pytest.mark.server
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_copy_of_a_table_can_be_ordered(tableside: Command, client: Client, form: str) -> None:
    source, copy = client.table(f"from_{form}"), client.table(f"to_{form}")
    source.load([("a", {"n": 1, "version": 2**62 + 1}), ("b", {"n": 1, "version": 5})])
    tableside("scan", source.name, "--format", form, "--output", f"rows.{form}")
    copy.put("a", {"n": 2}, order=2**62 + 2)
    done = tableside("load", copy.name, f"rows.{form}", "--order", "version")
    assert done.stdout == f"1 records stored in {copy.name}, 0 failed, 1 superseded\n", done.stderr
    assert (copy.get("a"), copy.get("b")) == ({"n": 2}, {"n": 1, "version": 5})
