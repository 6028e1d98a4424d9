"""The command `load`: rows that fail, its progress, and a service that restarts or is not there."""

import io
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from servers.process import free_port
from support.running import Service, running
from support.waiting import until
from tableside.cli import load as load_module
from tableside.cli import row_files
from tableside.cli.load import ERRORS_SHOWN_MAX, Loader
from tableside.cli.load_progress import LINE_INTERVAL_S, Bar, Lines, open_progress
from tableside.cli.main import app
from tableside.cli.row_files import ROWS_PER_PART, Part, read_parts
from tableside_client import Client, Retries


def load(url: str, table: str, file: Path, *keys: str) -> Result:
    options = [option for key in keys or ("id",) for option in ("--key", key)]
    return CliRunner().invoke(app, ["load", table, str(file), *options, "--url", url])


def value(url: str, table: str, key: str) -> Any:
    return httpx.get(f"{url}/v1/tables/{table}/records/{key}").raise_for_status().json()


@pytest.mark.server
def test_only_the_invalid_rows_fail_and_each_is_named(service: Service, tmp_path: Path) -> None:
    lines = ['{"id": "a", "n": 1}', '{"id": 7}', '{"id": 1.5}', "{", "[]", '{"id": "", "n": 1}', '{"id": "b", "n": 2}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    done = load(service.url, "load_rows", tmp_path / "rows.jsonl")
    assert (done.exit_code, done.stdout) == (1, "2 records stored in load_rows, 5 failed\n")
    assert [line.partition(": ")[2].partition(":")[0] for line in sorted(done.stderr.splitlines())] == [
        f"row {number}" for number in (2, 3, 4, 5, 6)
    ]
    assert value(service.url, "load_rows", "b") == {"n": 2}


@pytest.mark.server
def test_the_first_errors_are_shown_and_all_are_counted(service: Service, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n" * 2_500)
    done = load(service.url, "load_errors", tmp_path / "rows.jsonl")
    assert done.stdout == "0 records stored in load_errors, 2500 failed\n"
    assert len(done.stderr.splitlines()) == ERRORS_SHOWN_MAX


@pytest.mark.server
def test_a_file_larger_than_a_request_is_loaded(service: Service, tmp_path: Path) -> None:
    count = 2 * ROWS_PER_PART + 1
    (tmp_path / "rows.csv").write_text("id,n\n" + "".join(f"{number:04},{number}\n" for number in range(count)))
    rows = pa.table({"id": [f"{number:04}" for number in range(count)], "n": range(count)})
    pq.write_table(rows, tmp_path / "rows.parquet")
    for suffix in ("csv", "parquet"):
        done = load(service.url, f"load_{suffix}", tmp_path / f"rows.{suffix}")
        assert (done.exit_code, done.stdout) == (0, f"{count} records stored in load_{suffix}, 0 failed\n")
        assert value(service.url, f"load_{suffix}", f"{count - 1:04}") == {"n": count - 1}


@pytest.mark.server
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_integer_keys_of_a_new_table_fail_with_what_to_do(service: Service, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "rows.parquet")
    done = load(service.url, "load_integers", tmp_path / f"rows.{suffix}")
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
        ("ID,n\na,1\n", "the file has no column 'id': it has ID, n"),
        ("", "the file has no column 'id'"),
    ],
)
def test_columns_that_cannot_be_loaded_are_named_before_the_first_row(
    service: Service, tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "rows.csv").write_text(text)
    done = load(service.url, "load_columns", tmp_path / "rows.csv")
    assert (done.exit_code, done.stdout) == (2, "")
    assert fault in " ".join(done.stderr.replace("│", "").split())
    assert httpx.get(f"{service.url}/v1/tables/load_columns").status_code == 404


@pytest.mark.server
def test_the_unnamed_index_of_pandas_can_be_the_key(service: Service, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(",n\n007,1\n")
    assert load(service.url, "load_index", tmp_path / "rows.csv", "").exit_code == 0
    assert value(service.url, "load_index", "007") == {"n": 1}


@pytest.mark.server
def test_an_integer_beyond_64_bits_in_json_lines_fails(service: Service, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(f'{{"id": "a", "n": {2**63 - 1}}}\n{{"id": "b", "n": {2**64}}}\n')
    done = load(service.url, "load_long", tmp_path / "rows.jsonl")
    assert done.stdout == "1 records stored in load_long, 1 failed\n"
    assert "row 2: invalid_operation: an integer is beyond 64 bits" in done.stderr


def test_a_csv_file_may_have_a_byte_order_mark_lines_in_fields_and_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "CSV_BLOCK_BYTES", 1_000)
    file = tmp_path / "rows.csv"
    file.write_text('\ufeffid,"n\nm"\n', encoding="utf-8")
    assert list(read_parts(file, {"id": "string"})) == []
    file.write_text("id,n\n" + 'a,"b\nc"\n' * 1_000)
    rows = [row for part in read_parts(file, {"id": "string"}) for row in part.rows]
    assert rows == [{"id": "a", "n": "b\nc"}] * 1_000


@pytest.mark.server
def test_a_damaged_file_fails_after_the_rows_before_the_damage(service: Service, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"id,n\na,1\nb,1,2\n")
    done = load(service.url, "load_damaged", tmp_path / "rows.csv")
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
        with running(tmp_path / "data", port=port):
            assert loading.communicate(timeout=90)[0] == f"{2 * ROWS_PER_PART} records stored in t, 0 failed\n"
            assert value(url, "t", f"k{2 * ROWS_PER_PART - 1}") == {"n": 2 * ROWS_PER_PART - 1}
    assert errors.read_text().startswith("tableside: waited ")


def feed(rows: IO[str], start: int, end: int) -> None:
    rows.writelines(json.dumps({"id": f"k{number}", "n": number}) + "\n" for number in range(start, end))
    rows.flush()


def test_an_unreachable_service_fails_like_in_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}')
    monkeypatch.setattr(load_module, "RETRIES", Retries(total_s=0.2))
    done = load(f"http://127.0.0.1:{free_port()}", "t", tmp_path / "rows.jsonl")
    assert done.exit_code == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("tableside: table t: service_unreachable")


def test_a_load_stops_at_a_failure_that_outlasts_the_retries(capsys: pytest.CaptureFixture[str]) -> None:
    with Client(f"http://127.0.0.1:{free_port()}", retries=Retries(attempts_max=1)) as client:
        loader = Loader(client.table("t"), ["id"])
        loader.load([Part([{"id": "a"}, {"id": "b"}], 0.5), Part([{"id": "c"}], 1.0)], Lines("rows.jsonl"))
    assert (loader.stored, loader.failed) == (0, 2)
    assert "rows after 2 were not sent" in capsys.readouterr().err


def test_the_progress_of_a_csv_file_follows_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id\n" + "a\n" * 4 * ROWS_PER_PART)
    assert [part.fraction for part in read_parts(file, {"id": "string"})] == [0.25, 0.5, 0.75, 1.0]


def test_without_a_terminal_progress_is_a_line_at_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = [100.0]
    lines = Lines("rows.csv", lambda: now_s[0])
    for rows, elapsed_s in ((1_000, 1.0), (20_000, LINE_INTERVAL_S), (21_000, LINE_INTERVAL_S + 1)):
        now_s[0] = 100.0 + elapsed_s
        lines.show(rows, rows / 40_000)
    assert capsys.readouterr().err == "tableside: 20,000 rows sent, 50% of rows.csv, 2,000 rows/s\n"


def test_on_a_terminal_progress_is_a_bar_with_rows_and_rate() -> None:
    screen = io.StringIO()
    with open_progress("rows.csv", Console(file=screen, force_terminal=True, width=120)) as progress:
        assert isinstance(progress, Bar)
        progress.show(20_000, 0.5)
    assert "20,000 rows" in screen.getvalue()
    assert "rows/s" in screen.getvalue()
    assert "50%" in screen.getvalue()
