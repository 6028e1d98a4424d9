"""`python -m tableside_spark.state`."""

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from scripts.state_jar import JAR, ensure_jar
from servers.jdk import ensure_javac
from spark_client.state.written import TABLES, TIME, Written, a_query, service
from tableside_client import Client
from tableside_spark.state import State
from tableside_spark.state.__main__ import main

pytestmark = pytest.mark.server

RUN = "runpy.run_module('tableside_spark.state', run_name='__main__')"
SAY = "except SystemExit as end: print(end.code, 'pyspark' in sys.modules)"
NOTHING = "table pair has no state of query nothing"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with service(tmp_path_factory.mktemp("service")) as opened:
        yield opened


@pytest.fixture
def address(client: Client, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the service, which the command reads from the environment."""
    url = client.url
    monkeypatch.setenv("TABLESIDE_URL", url)
    return url


@pytest.fixture(params=TABLES)
def written(request: pytest.FixtureRequest, client: Client, address: str) -> Written:
    found = Written(client, request.param, str(uuid.uuid4()))
    a_query(found)
    return found


def test_queries_are_listed(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--table", written.table]) == 0
    assert f"{written.query}\t{TIME}\t2 operators\t4 places\t/checkpoints/a\n" in capsys.readouterr().out


def test_a_query_is_shown_place_by_place(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", written.query, "--table", written.table]) == 0
    *_, head, first, second, left, right, last = capsys.readouterr().out.splitlines()
    assert head.split("\t")[3:6] == ["latest", "records", "versions"]
    assert first.split("\t") == ["0", "0", "default", "5", "50", "3", "300", "40000", "2"]
    assert second.split("\t") == ["0", "1", "default", "1", "10", "1", "2000", "0", "1"]
    assert left.split("\t") == ["1", "0", "left-keyToNumValues", "2", "20", "2", "200", "0", "2"]
    assert right.split("\t") == ["1", "0", "right-keyToNumValues", "-", "-", "0", "0", "0", "0"]
    assert last == f"{written.query}: 42500 bytes in 4 places"


def test_state_moves_to_another_checkpoint(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["move", written.query, "/checkpoints/b", "--table", written.table]) == 0
    assert capsys.readouterr().out == f"{written.query}: moved from /checkpoints/a to /checkpoints/b\n"
    moved = State(written.client, written.table).query(written.query)
    assert (moved.checkpoint, moved.created, len(moved.stores)) == ("/checkpoints/b", TIME, 3)


def test_removing_a_query_prints_its_progress(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", written.query, "--yes", "--table", written.table]) == 0
    said = capsys.readouterr()
    assert said.out == f"{written.query}: {len(written.records)} records removed\n"
    assert (f"{written.query}/0/1/default: " if written.table == "pair" else "the query: ") in said.err
    assert written.left() == set()


@pytest.mark.parametrize("answer", ["y", "no", None])
def test_it_asks_before_removing_and_without_a_terminal_removes_nothing(
    client: Client, address: str, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    written = Written(client, "pair", str(uuid.uuid4()))
    a_query(written)
    monkeypatch.setattr("sys.stdin.isatty", lambda: answer is not None)
    monkeypatch.setattr("builtins.input", lambda asked: answer if "/checkpoints/a?" in asked else "?")
    words = ["delete", written.query, "--table", "pair"]
    if answer is None:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    else:
        assert main(words) == (0 if answer == "y" else 1)
    assert (written.left() == set()) is (answer == "y")


@pytest.mark.parametrize("words", [["show", "nothing"], ["move", "nothing", "/b"], ["delete", "nothing"]])
def test_an_absent_query_is_a_failure(address: str, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main([*words, "--table", "pair"]) == 1
    assert capsys.readouterr().err == f"tableside_spark.state: {NOTHING}\n"


@pytest.mark.parametrize("words", [[], ["list"], ["settings", "--table", "pair", "--in-flight-max", "0"]])
def test_wrong_usage_has_a_separate_exit_code(address: str, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_the_jar_and_the_settings_are_printed_without_a_service(capsys: pytest.CaptureFixture[str]) -> None:
    ensure_jar(ensure_javac())
    assert main(["jar"]) == 0
    assert capsys.readouterr().out == f"{JAR}\n"
    assert main(["settings", "--url", "http://h", "--table", "t", "--timeout-s", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "spark.tableside.state.timeout_s 3.0"


def test_it_is_a_module_that_runs_and_imports_no_spark() -> None:
    program = f"import runpy, sys\nsys.argv[1:] = ['list']\ntry: {RUN}\n{SAY}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
