"""The command `load`: its formats, rows that fail, its progress, and a service that restarts or does not recover."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

from servers.process import free_port
from support.running import running
from support.waiting import until
from tableside_cli.client_command import client_command
from tableside_cli.load import LINE_INTERVAL_S, load, shown_progress
from tableside_cli.row_files import ROWS_PER_PART
from tableside_client import Client, Retries

Command = Callable[..., Result]

THROTTLED = """
stores: {a: {kind: memory}}
tables: {t: {store: a, deadline_s: 0.5, write: {rate_per_s: 0.001, burst: 1}}}
"""


@pytest.fixture
def load_file(tableside: Command, tmp_path: Path) -> Command:
    """Write a file, if it has content, and load it into a table."""

    def run(table: str, file: str, content: str | bytes | None = None, key: str = "id") -> Result:
        if content is not None:
            (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tableside("load", table, file, "--key", key)

    return run


@pytest.mark.server
@pytest.mark.parametrize(
    ("file", "content", "key", "values"),
    [
        ("people.csv", "id,name,age\n007,Ann,41\n8,Bob,\n", "id", {"007": ["Ann", 41], "8": ["Bob", None]}),
        ("people.tsv", "name\tage\tid\nAnn, B\t41\t1e5\n", "id", {"1e5": ["Ann, B", 41]}),
        ("marked.csv", '\ufeffid,"n\nm",age\na,"b\nc",41\n', "id", {"a": ["b\nc", 41]}),
    ],
)
def test_keys_and_texts_of_a_csv_file_stay_as_they_are(
    load_file: Command, client: Client, file: str, content: str, key: str, values: dict[str, list[Any]]
) -> None:
    done = load_file("people", file, content, key)
    assert done.stdout == f"{len(values)} records stored in people, 0 failed\n"
    assert {key: [*value.values()] for key, value in client.table("people").get_many(values).items()} == values


@pytest.mark.server
def test_a_json_lines_file_is_loaded_exactly_and_its_bad_row_named(load_file: Command, client: Client) -> None:
    lines = ['{"id": "x", "v": 9007199254740993, "e": {}}', "", '{"v": 1}', '{"id": "y", "e": []}']
    result = load_file("lines", "a.jsonl", "\n".join(lines))
    assert (result.exit_code, result.stdout) == (1, "2 records stored in lines, 1 failed\n")
    assert "row 2: no field 'id'" in result.stderr
    assert client.table("lines").get("x") == {"v": 9007199254740993, "e": {}}
    assert client.table("lines").get("y") == {"e": []}


@pytest.mark.server
@pytest.mark.parametrize(
    "line",
    [
        '{"id": 7}',
        "{",
        '{"id": "", "n": 1}',
        '{"id": "b", "n": 1e400}',
        '{"id": "b", "n": "\\ud800"}',
        f'{{"id": "b", "n": {"[" * 100_000}',
        "\xff",
    ],
    ids=range(7),
)
def test_only_the_invalid_row_fails_and_is_named(load_file: Command, client: Client, line: str) -> None:
    rows = ['{"id": "a"}', line, f'{{"id": "c", "n": {2**63 - 1}}}']
    done = load_file("load_rows", "rows.jsonl", "\n".join(rows).encode("latin-1"))
    assert (done.exit_code, done.stdout) == (1, "2 records stored in load_rows, 1 failed\n")
    assert done.stderr.startswith("tableside: row 2: ")
    assert len(done.stderr.splitlines()) == 1
    assert client.table("load_rows").get("c") == {"n": 2**63 - 1}


@pytest.mark.server
@pytest.mark.parametrize(
    ("first", "values"),
    [
        (["x"], pa.array([["x"], None])),
        ("1970-01-01T00:00:00", pa.array([0, None], pa.timestamp("us"))),
        (1.5, pa.array(["1.5", "1234567890123456.5"]).cast(pa.decimal128(20, 1))),
        (None, pa.array([None, b"x"])),
        (None, pa.array([None, float("inf")])),
    ],
    ids=range(5),
)
def test_a_value_that_json_does_not_have_becomes_text_or_a_number_or_fails_alone(
    load_file: Command, client: Client, tmp_path: Path, first: Any, values: pa.Array
) -> None:
    pq.write_table(pa.table({"id": ["a", "b"], "value": values}), tmp_path / "rows.parquet")
    done = load_file("load_values", "rows.parquet")
    assert client.table("load_values").get("a") == {"value": first}
    failed = int(values[1].is_valid)
    assert (done.exit_code, done.stdout) == (failed, f"{2 - failed} records stored in load_values, {failed} failed\n")
    assert ("tableside: row 2: " in done.stderr) is bool(failed)


@pytest.mark.server
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_larger_than_a_request_is_loaded(
    load_file: Command, client: Client, tmp_path: Path, suffix: str
) -> None:
    count = 2 * ROWS_PER_PART + 1
    rows = pa.table({"id": [f"{number:04}" for number in range(count)], "n": range(count)})
    pq.write_table(rows, tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("id,n\n" + "".join(f"{number:04},{number}\n" for number in range(count)))
    done = load_file(f"load_{suffix}", f"rows.{suffix}")
    assert (done.exit_code, done.stdout) == (0, f"{count} records stored in load_{suffix}, 0 failed\n")
    assert client.table(f"load_{suffix}").get(f"{count - 1:04}") == {"n": count - 1}


@pytest.mark.server
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_integer_keys_of_a_new_table_fail_with_what_to_do(load_file: Command, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "rows.parquet")
    done = load_file("load_integers", f"rows.{suffix}")
    assert (done.exit_code, done.stdout) == (1, "0 records stored in load_integers, 2 failed\n")
    assert done.stderr.splitlines()[0] == (
        "tableside: row 1: the key field 'id' is an integer, and keys of this table are strings: write it as text, or "
        "declare a table with integer keys in the configuration of the service"
    )


@pytest.mark.server
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (",id,n\n0,a,1\n", "column 1 has no name: name it, or write the file with index=False"),
        ("id,n,n\na,1,2\n", "two columns have the name 'n'"),
        ("ID\na\n", "the file has no column 'id': it has ID"),
    ],
)
def test_columns_that_cannot_be_loaded_are_named_before_the_first_row(
    load_file: Command, client: Client, text: str, fault: str
) -> None:
    done = load_file("load_columns", "rows.csv", text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert fault in " ".join(done.stderr.replace("│", "").split())
    assert "load_columns" not in [table["name"] for table in client.tables()]


@pytest.mark.server
def test_the_first_errors_are_shown_and_all_are_counted(load_file: Command) -> None:
    done = load_file("load_errors", "rows.jsonl", "{}\n" * 2_500)
    assert done.stdout == "0 records stored in load_errors, 2500 failed\n"
    assert len(done.stderr.splitlines()) == 5


@pytest.mark.server
def test_a_damaged_file_fails_after_the_rows_before_the_damage(load_file: Command) -> None:
    done = load_file("load_damaged", "rows.csv", "id,n\na,1\nb,1,2\n")
    assert done.exit_code == 1
    assert "rows.csv cannot be read any further" in done.stderr


@pytest.mark.server
def test_a_load_survives_a_restart_of_the_service_and_prints_that_it_waits(tmp_path: Path) -> None:
    port, pipe, errors = free_port(), tmp_path / "rows.jsonl", tmp_path / "errors"
    os.mkfifo(pipe)
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as first, errors.open("wb") as output:
        first.enter_context(running(tmp_path / "data", port=port))
        command = [sys.executable, "-m", "tableside", "load", "t", str(pipe), "--key", "id", "--url", url]
        loading = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
        with pipe.open("w") as rows:
            feed(rows, 0, ROWS_PER_PART)
            until(lambda: httpx.get(f"{url}/v1/tables/t/records/k{ROWS_PER_PART - 1}").status_code == 200)
            first.close()
            feed(rows, ROWS_PER_PART, 2 * ROWS_PER_PART)
        until(lambda: "waited" in errors.read_text())
        with running(tmp_path / "data", port=port), Client(url) as client:
            assert loading.communicate(timeout=90)[0] == f"{2 * ROWS_PER_PART} records stored in t, 0 failed\n"
            assert client.table("t").get(f"k{2 * ROWS_PER_PART - 1}") == {"n": 2 * ROWS_PER_PART - 1}
    assert errors.read_text().startswith("tableside: waited ")


def feed(rows: IO[str], start: int, end: int) -> None:
    rows.writelines(json.dumps({"id": f"k{number}", "n": number}) + "\n" for number in range(start, end))
    rows.flush()


@pytest.mark.server
def test_a_load_stops_at_a_failure_that_outlasts_the_retries(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(THROTTLED)
    with (tmp_path / "rows.jsonl").open("w") as rows:
        feed(rows, 0, 2 * ROWS_PER_PART)
    app = typer.Typer()
    app.command()(client_command(load, Retries(attempts_max=1)))
    with running(tmp_path, tmp_path / "c.yaml") as service:
        arguments = ["t", str(tmp_path / "rows.jsonl"), "--key", "id", "--url", service.url]
        done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (1, f"1 records stored in t, {ROWS_PER_PART - 1} failed\n")
    assert f"the load stopped: rows after {ROWS_PER_PART} were not sent" in done.stderr


def test_without_a_terminal_progress_is_a_line_at_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    with shown_progress("rows.csv", clock=lambda: now_s) as show:
        for rows, elapsed_s in ((1_000, 1.0), (20_000, LINE_INTERVAL_S), (21_000, LINE_INTERVAL_S + 1)):
            now_s = 100.0 + elapsed_s
            show(rows, rows / 40_000)
    assert capsys.readouterr().err == "tableside: 20,000 rows sent, 50% of rows.csv, 2,000 rows/s\n"
