"""The command line, in this process and as a user runs it, against a real service."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from support.running import Service, running
from tableside import __version__
from tableside.cli.main import app

pytestmark = pytest.mark.server
Command = Callable[..., Result]


@pytest.fixture
def tableside(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command in this process, in a directory of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, url: str = service.url) -> Result:
        return CliRunner().invoke(app, arguments, env={"TABLESIDE_URL": url, "COLUMNS": "120"})

    return run


def test_a_process_ends_with_the_output_and_the_exit_code_of_its_command(service: Service) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tableside", *arguments, "--url", service.url]
        return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60)

    assert run("put", "cli", "process", '{"n": 1}').returncode == 0
    found, absent = run("get", "cli", "process"), run("get", "cli", "absent")
    assert (found.returncode, json.loads(found.stdout), found.stderr) == (0, {"n": 1}, "")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert absent.stderr.startswith("tableside: ")
    assert "record_not_found" in absent.stderr


def test_a_record_is_put_read_changed_and_deleted(tableside: Command) -> None:
    assert tableside("put", "cli", "a/b", '{"n": 1}').exit_code == 0
    assert json.loads(tableside("get", "cli", "a/b").stdout) == {"n": 1}
    assert json.loads(tableside("update", "cli", "a/b", '{"$inc": {"n": 2}}').stdout) == {"n": 3}
    assert tableside("delete", "cli", "a/b").exit_code == 0
    absent = tableside("get", "cli", "a/b")
    assert absent.exit_code == 1
    assert "record_not_found" in absent.stderr


def test_an_update_starts_from_its_default(tableside: Command) -> None:
    assert tableside("update", "cli", "new", '{"$inc": {"n": 1}}').exit_code == 1
    result = tableside("update", "cli", "new", '{"$inc": {"n": 1}}', "--default", '{"n": 41}')
    assert json.loads(result.stdout) == {"n": 42}


def test_exit_codes_of_wrong_usage_and_of_an_unreachable_service(tableside: Command) -> None:
    assert tableside("put", "cli", "a", "no JSON").exit_code == 2
    assert tableside("put", "cli").exit_code == 2
    assert tableside("scan", "cli", "--limit", "0").exit_code == 2
    assert tableside("serve", "--workers", "2").exit_code == 2
    unreachable = tableside("get", "cli", "a", url="http://127.0.0.1:9")
    assert unreachable.exit_code == 1
    assert unreachable.stderr.startswith("tableside: ")
    last = unreachable.stderr.splitlines()[-1]
    assert last.startswith("tableside: table cli: service_unreachable: http://127.0.0.1:9: ConnectError: ")
    assert last.endswith("; start the service with tableside serve, or set --url or TABLESIDE_URL")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8080", "such as http://localhost:8080, not 'localhost:8080'"),
        ("127.0.0.1:8080/", "such as http://127.0.0.1:8080, not '127.0.0.1:8080'"),
        ("ftp://host", "such as http://host, not 'ftp://host'"),
        ("http://", "address, not 'http:'"),
        ("u:hunter2@host", "without a user or a password"),
    ],
)
def test_a_url_without_a_scheme_is_shown_with_the_intended_one(tableside: Command, url: str, message: str) -> None:
    refused = tableside("tables", url=url)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.replace("│", "").split())
    assert "hunter2" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("put", "cli", "a", "[1]"), "the value must be a JSON object"),
        (("put", "cli", "a", "1"), "the value must be a JSON object"),
        (("put", "cli", "a", '{"n": NaN}'), "the value is not JSON"),
        (("put", "cli", "a", '{"n": 1e400}'), "the value is not JSON"),
        (("put", "cli", "a", '{"n": "\\ud800"}'), "the value is not JSON"),
        (("update", "cli", "a", "{}", "--default", "[]"), "--default must be a JSON object"),
        (("get", "cli", "\udcff"), "key is not valid text"),
    ],
)
def test_arguments_that_are_not_objects_or_text_are_wrong_usage(
    tableside: Command, arguments: tuple[str, ...], message: str
) -> None:
    result = tableside(*arguments)
    assert result.exit_code == 2, result.exception
    assert message in result.stderr


def test_several_workers_need_a_channel_for_a_cache(tableside: Command, tmp_path: Path) -> None:
    config = tmp_path / "cached.yaml"
    config.write_text(
        "stores: {s: {kind: redis, url: 'redis://127.0.0.1:1'}}\n"
        "tables: {t: {store: s, cache: {records_max: 1, ttl_s: 1}}}\n"
    )
    refused = tableside("serve", "--workers", "2", "--config", str(config))
    assert refused.exit_code == 2
    assert "a cache needs a channel or a single worker" in refused.stderr


def test_other_addresses_than_loopback_require_insecure(tableside: Command) -> None:
    refused = tableside("serve", "--host", "0.0.0.0")
    assert refused.exit_code == 2
    assert "--insecure" in refused.stderr


def test_a_csv_file_is_loaded_with_unchanged_keys(tableside: Command, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id,name,age\n007,Ann,41\n008,Bob,\n")
    assert "2 records stored in people, 0 failed" in tableside("load", "people", "people.csv", "--key", "id").stdout
    assert json.loads(tableside("get", "people", "007").stdout) == {"name": "Ann", "age": 41}
    assert json.loads(tableside("get", "people", "008").stdout) == {"name": "Bob", "age": None}


def test_a_json_lines_file_is_loaded_exactly_and_its_bad_row_named(tableside: Command, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":"x","v":9007199254740993,"e":{}}\n\n{"v":1}\n{"id":"y","e":[]}\n')
    result = tableside("load", "lines", "a.jsonl", "--key", "id")
    assert result.exit_code == 1
    assert "2 records stored in lines, 1 failed" in result.stdout
    assert "row 2: no field 'id'" in result.stderr
    assert json.loads(tableside("get", "lines", "x").stdout) == {"v": 9007199254740993, "e": {}}
    scanned = [json.loads(line) for line in tableside("scan", "lines").stdout.splitlines()]
    assert [record["key"] for record in scanned] == ["x", "y"]


def test_a_scan_shows_the_partition_of_each_record_of_a_partitioned_table(tableside: Command, tmp_path: Path) -> None:
    stores: dict[str, dict[str, object]] = {name: {"kind": "memory"} for name in ("a", "b")}
    stores["copies"] = {"kind": "partitioned", "partitions": ["a", "b"]}
    tables = {"copied": {"store": "copies"}, "pairs": {"store": "copies", "key": {"who": "string", "at": "integer"}}}
    config = tmp_path / "partitioned.yaml"
    config.write_text(json.dumps({"stores": stores, "tables": tables}))
    with running(tmp_path, config) as service:
        for table, key in (("copied", "k"), ("pairs", ["k", 1])):
            operation = {"op": "put", "key": key, "value": {"n": 1}, "partitions": "all"}
            httpx.post(f"{service.url}/v1/tables/{table}/batch", json={"operations": [operation]}).raise_for_status()
            lines = tableside("scan", table, url=service.url).stdout.splitlines()
            found = [(record["key"], record["partition"]) for record in map(json.loads, lines)]
            assert sorted(found) == [(key, 0), (key, 1)]


def test_a_parquet_file_is_loaded(tableside: Command, tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"], "when": pa.array([0, None], pa.timestamp("us")), "tags": [["x"], []]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert tableside("load", "parquet", "rows.parquet", "--key", "id").exit_code == 0
    assert json.loads(tableside("get", "parquet", "a").stdout) == {"when": "1970-01-01T00:00:00", "tags": ["x"]}


def test_tables_are_listed_with_store_and_key(tableside: Command) -> None:
    tableside("put", "listed", "a", "{}")
    assert "listed\trocksdb\tkey string" in tableside("tables").stdout.splitlines()


def test_check_lists_every_fault_with_its_path(tableside: Command, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(
        "stores: {local: {kind: rocksdb}, other: {kind: floppy}}\n"
        "tables: {a: {store: nowhere}, b: {store: local, deadline_s: -1}}\n"
        "surprise: 1\n"
    )
    result = tableside("check", "wrong.yaml")
    assert result.exit_code == 1
    paths = {line.split(": ")[1] for line in result.stderr.splitlines()}
    assert paths == {"stores.local.path", "stores.other.kind", "tables.a.store", "tables.b.deadline_s", "surprise"}
    (tmp_path / "right.yaml").write_text("stores: {local: {kind: memory}}\ntables: {a: {store: local}}\n")
    assert tableside("check", "right.yaml").exit_code == 0


def test_the_version_is_printed(tableside: Command) -> None:
    done = tableside("--version")
    assert (done.exit_code, done.stdout) == (0, f"tableside {__version__}\n")


def test_commands_and_options_are_completed(tableside: Command) -> None:
    def completed(words: str) -> list[str]:
        variables = {"_TABLESIDE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return CliRunner().invoke(app, prog_name="tableside", env=variables).stdout.split()

    assert completed("tableside sc") == ["scan"]
    assert "--format" in completed("tableside scan --f")


def test_completion_is_installed_for_the_current_shell(tmp_path: Path) -> None:
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def bash(script: str) -> str:
        command = ["bash", "--norc", "-c", f"{script}; exit"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout

    assert "bash completion installed" in bash("tableside --install-completion")
    line = "COMP_WORDS=(tableside sc); COMP_CWORD=1; _tableside_completion tableside; echo ${COMPREPLY[@]}"
    assert bash(f"source ~/.bashrc; {line}").split() == ["scan"]
