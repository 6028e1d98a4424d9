"""The commands for single records and tables, their options, and their errors."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import Result

from support.running import Service, running
from tableside import __version__

pytestmark = pytest.mark.server
Command = Callable[..., Result]
SECRET = "tableside_command-line-s3cr3t"


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


def test_a_record_is_put_read_changed_deleted_and_made_from_a_default(tableside: Command) -> None:
    assert tableside("put", "cli", "a/b", '{"n": 1}').exit_code == 0
    assert json.loads(tableside("get", "cli", "a/b").stdout) == {"n": 1}
    assert json.loads(tableside("update", "cli", "a/b", '{"$inc": {"n": 2}}').stdout) == {"n": 3}
    assert tableside("delete", "cli", "a/b").exit_code == 0
    assert tableside("get", "cli", "a/b").exit_code == 1
    assert tableside("update", "cli", "a/b", '{"$inc": {"n": 1}}').exit_code == 1
    started = tableside("update", "cli", "a/b", '{"$inc": {"n": 1}}', "--default", '{"n": 41}')
    assert json.loads(started.stdout) == {"n": 42}
    assert "cli\trocksdb\tkey string" in tableside("tables").stdout.splitlines()


def test_many_records_are_deleted_only_if_that_is_confirmed(tableside: Command) -> None:
    for key in ("x1", "x2", "y1"):
        tableside("put", "many", key, "{}")
    refused = tableside("delete", "many", "--prefix", "x")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "tableside: no record was deleted: confirm with y, or use --yes\n",
    )
    deleted = tableside("delete", "many", "--prefix", "x", "--yes")
    assert (deleted.exit_code, deleted.stderr) == (0, "2 records deleted from many\n")
    assert [json.loads(line)["key"] for line in tableside("scan", "many").stdout.splitlines()] == ["y1"]
    assert tableside("delete", "many", "--all", "--yes").stderr == "1 records deleted from many\n"
    assert tableside("scan", "many").stdout == ""


@pytest.mark.parametrize("arguments", [("get", "cli", "a"), ("load", "cli", "rows.csv", "--key", "id")], ids=" ".join)
def test_an_unreachable_service_is_one_line_with_what_to_do(tableside: Command, arguments: tuple[str, ...]) -> None:
    Path("rows.csv").write_text("id\na\n")
    unreachable = tableside(*arguments, url="http://127.0.0.1:9")
    assert unreachable.exit_code == 1
    assert all(line.startswith("tableside: ") for line in unreachable.stderr.splitlines())
    last = unreachable.stderr.splitlines()[-1]
    assert last.startswith("tableside: table cli: service_unreachable: http://127.0.0.1:9: ConnectError: ")
    assert last.endswith("; start the service with tableside serve, or set --url or TABLESIDE_URL")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8080", "such as http://localhost:8080, not 'localhost:8080'"),
        ("ftp://host", "such as http://host, not 'ftp://host'"),
        ("http://ho\nst", "address, not 'http://ho\\nst'"),
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
        (("put", "cli", "a", "no JSON"), "the value is not JSON"),
        (("put", "cli", "a", "[1]"), "the value must be a JSON object"),
        (("put", "cli", "a", '{"n": NaN}'), "the value is not JSON"),
        (("update", "cli", "a", "{}", "--default", "[]"), "--default must be a JSON object"),
        (("get", "cli", "\udcff"), "key is not valid text"),
        (("delete", "cli", "--prefix", ""), "name exactly one"),
        (("delete", "cli", "--prefix", "a", "--order", "1"), "need a key"),
        (("delete", "cli", "a", "--order", "0", "--forget"), "cannot be combined"),
        (("put", "cli", "a", "{}", "--order", str(2**63)), "neither an integer"),
        (("scan", "cli", "--format", "parquet"), "--output"),
        (("load", "cli", __file__), "must end in .csv"),
        (("get", "cli", "a", "--token-file", "none"), "does not exist"),
    ],
)
def test_wrong_arguments_have_a_message_and_exit_code_2(
    tableside: Command, arguments: tuple[str, ...], message: str
) -> None:
    result = tableside(*arguments)
    assert result.exit_code == 2, result.exception
    assert message in result.stderr


def test_the_version_is_printed(tableside: Command) -> None:
    done = tableside("--version")
    assert (done.exit_code, done.stdout) == (0, f"tableside {__version__}\n")


def test_completion_is_installed_for_the_current_shell(tmp_path: Path) -> None:
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def bash(script: str) -> str:
        command = ["bash", "--norc", "-c", f"{script}; exit"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout

    assert "bash completion installed" in bash("tableside --install-completion")
    line = "COMP_WORDS=(tableside sc); COMP_CWORD=1; _tableside_completion tableside; echo ${COMPREPLY[@]}"
    assert bash(f"source ~/.bashrc; {line}").split() == ["scan"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service that needs a token."""
    directory = tmp_path_factory.mktemp("guarded")
    config = directory / "tableside.yaml"
    config.write_text(
        "stores: {local: {kind: memory}}\nauto_create: true\n"
        f"auth: {{tokens: [{{name: c, sha256: {sha256(SECRET.encode()).hexdigest()}, read: ['c*'], write: ['c*']}}]}}\n"
    )
    with running(directory, config) as started:
        yield started.url


def test_every_command_sends_the_token_of_a_file_or_of_the_environment(tableside: Command, guarded: str) -> None:
    Path("token").write_text(f"{SECRET}\n")
    Path("rows.csv").write_text("id,n\nb,1\n")
    option, variable = ["--token-file", "token"], {"url": guarded, "TABLESIDE_TOKEN": SECRET}
    assert tableside("put", "cli", "a", '{"n": 1}', *option, url=guarded).exit_code == 0
    assert tableside("get", "cli", "a", **variable).stdout == '{"n": 1}\n'
    assert tableside("update", "cli", "a", '{"n": 2}', url=guarded, TABLESIDE_TOKEN_FILE="token").stdout == '{"n": 2}\n'
    assert tableside("load", "cli", "rows.csv", "--key", "id", *option, url=guarded).exit_code == 0
    assert len(tableside("scan", "cli", *option, url=guarded).stdout.splitlines()) == 2
    assert tableside("tables", **variable).stdout.startswith("cli\t")
    assert tableside("delete", "cli", "a", **variable).exit_code == 0


@pytest.mark.parametrize(
    ("table", "token", "file", "why"),
    [
        ("cli", "", "", "; no token was sent: set --token-file or TABLESIDE_TOKEN"),
        ("cli", f"{SECRET}x", "", "; the token in TABLESIDE_TOKEN was rejected"),
        ("cli", "", f"{SECRET}x", "; the token in token was rejected"),
        ("other", SECRET, "", "forbidden"),
    ],
)
def test_a_refusal_is_one_line_without_the_token(
    tableside: Command, guarded: str, table: str, token: str, file: str, why: str
) -> None:
    Path("token").write_text(file)
    option = ["--token-file", "token"] if file else []
    found = tableside("get", table, "a", *option, url=guarded, TABLESIDE_TOKEN=token)
    assert found.exit_code == 1
    assert why in found.stderr
    assert SECRET not in found.stdout + found.stderr
    assert isinstance(found.exception, SystemExit)
