"""Parts of the demonstration: its data, its service, and its check, which must detect differences."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from examples.demo import check, service

from scripts.bootstrap import ROOT
from servers.process import free_port
from tableside_client import Client

pytestmark = [pytest.mark.daily, pytest.mark.server, pytest.mark.xdist_group("documents")]

EQUAL = [
    "EQUAL: 4,043 aircraft, 32,344 figures, none differs",
    "EQUAL: 336,776 joined flights, 4,714,864 figures, none differs",
]


@pytest.mark.full
@pytest.mark.jvm
@pytest.mark.parametrize("store", ["redis", "postgres", "dynamodb"])
def test_another_store_gives_the_same_figures(store: str) -> None:
    command = [sys.executable, "-m", "examples.demo", "--store", store, "--port", str(free_port())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall("EQUAL: .*", done.stdout) == EQUAL
    assert done.stdout.count("KILLED the service") == done.stdout.count("restarted it as process") == 1


def test_a_killed_service_restarts_with_its_records(tmp_path: Path) -> None:
    with service.running(tmp_path, free_port()) as started, Client(started.url) as client:
        first = started.process.pid
        client.table("letters").put("a", {"n": 1})
        started.kill()
        started.restart()
        assert started.process.pid != first
        assert client.table("letters").get("a") == {"n": 1}


@pytest.mark.parametrize(
    ("actual", "differing"),
    [
        ([("b", None, ""), ("a", 1, "x")], set()),
        ([("a", 1, "x"), ("b", None, ""), ("b", None, "")], {("b", 1, 2)}),
        ([("a", 1, "x y"), ("b", 0, "")], {("a", 1, 0), ("a", 0, 1), ("b", 1, 0), ("b", 0, 1)}),
    ],
)
def test_the_check_detects_rows_that_one_side_has_more_often(
    actual: list[tuple[object, ...]], differing: set[tuple[str, int, int]]
) -> None:
    comparison = check.compare(_aircraft([("a", 1, "x"), ("b", None, "")]), _aircraft(actual))
    found = {(row["tailnum"], row["expected_sum"], row["actual_sum"]) for row in comparison.differing}
    assert found == differing
    assert (comparison.rows, comparison.figures) == (2, 6)


def _aircraft(rows: list[tuple[object, ...]]) -> pa.Table:
    schema = pa.schema({"tailnum": pa.string(), "flights": pa.int64(), "destinations": pa.string()})
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
