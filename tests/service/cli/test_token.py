"""Tokens on the command line: they are created, sent, and never shown again."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

from support.running import Service, running
from tableside.auth.authenticator import Auth
from tableside.cli.main import app
from tableside.settings import validate

pytestmark = pytest.mark.server
Command = Callable[..., Result]
SECRET = "tableside_command-line-s3cr3t"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory: Path = tmp_path_factory.mktemp("guarded")
    config = directory / "tableside.yaml"
    config.write_text(
        "stores: {local: {kind: memory}}\nauto_create: true\n"
        f"auth: {{tokens: [{{name: c, sha256: {sha256(SECRET.encode()).hexdigest()}, read: ['c*'], write: ['c*']}}]}}\n"
    )
    with running(directory, config) as started:
        yield started


@pytest.fixture
def tableside(guarded: Service) -> Command:
    def run(*arguments: str, **environment: str) -> Result:
        given = {"TABLESIDE_URL": guarded.url, "COLUMNS": "120", **environment}
        return CliRunner().invoke(app, arguments, env=given)

    return run


def new(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["token", "new", *arguments])


def test_a_new_token_matches_its_printed_entry() -> None:
    made = [new("etl", "--read", "*", "--read", "a?", "--write", "profile*") for _ in range(2)]
    [token, line], [other, _] = (one.stdout.splitlines() for one in made)
    entries = yaml.safe_load(line)
    auth = validate({"stores": {"s": {"kind": "memory"}}, "auth": {"tokens": entries}}).auth
    caller = Auth(auth, CollectorRegistry()).caller_of(token.encode())
    assert caller is not None
    assert (caller.name, caller.admin) == ("etl", False)
    assert caller.may("read", "any")
    assert [caller.may("write", table) for table in ("profiles", "any")] == [True, False]
    assert token not in line
    assert len(token) > 40
    assert token != other


def test_a_new_token_may_be_an_admins() -> None:
    [entry] = yaml.safe_load(new("op", "--admin").stdout.splitlines()[1])
    assert (entry["admin"], entry["read"], entry["write"]) == (True, [], [])


@pytest.mark.parametrize("arguments", [["a b"], [""], ["etl", "--read", "a/b"], ["etl", "--write", ""]])
def test_a_token_with_an_invalid_entry_is_not_created(arguments: list[str]) -> None:
    refused = new(*arguments)
    assert refused.exit_code == 2
    assert refused.stdout == ""


def test_the_verbs_send_the_token_of_a_file_or_of_the_environment(tableside: Command, tmp_path: Path) -> None:
    file, rows = tmp_path / "token", tmp_path / "rows.csv"
    file.write_text(f"{SECRET}\n")
    rows.write_text("id,n\nb,1\n")
    option, variable = ["--token-file", str(file)], {"TABLESIDE_TOKEN": SECRET}
    assert tableside("put", "cli", "a", '{"n": 1}', *option).exit_code == 0
    assert tableside("get", "cli", "a", **variable).stdout == '{"n": 1}\n'
    assert tableside("update", "cli", "a", '{"n": 2}', TABLESIDE_TOKEN_FILE=str(file)).stdout == '{"n": 2}\n'
    assert tableside("load", "cli", str(rows), "--key", "id", *option).exit_code == 0
    assert len(tableside("scan", "cli", *option).stdout.splitlines()) == 2
    assert tableside("tables", **variable).stdout.startswith("cli\t")
    assert tableside("delete", "cli", "a", **variable).exit_code == 0


def test_a_refusal_is_one_line_without_the_token(tableside: Command, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}ü")
    wrong = tmp_path / "wrong"
    wrong.write_text(f"{SECRET}x")
    asked = [
        (tableside("get", "cli", "a"), 1, "; no token was sent: set --token-file or TABLESIDE_TOKEN"),
        (tableside("get", "cli", "a", TABLESIDE_TOKEN=f"{SECRET}x"), 1, "; the token in TABLESIDE_TOKEN was rejected"),
        (tableside("get", "cli", "a", "--token-file", str(wrong)), 1, f"; the token in {wrong} was rejected"),
        (tableside("get", "other", "a", TABLESIDE_TOKEN=SECRET), 1, "forbidden"),
        (tableside("get", "cli", "a", "--token-file", str(file)), 1, "ASCII"),
        (tableside("get", "cli", "a", "--token-file", str(tmp_path / "none")), 2, "does not exist"),
    ]
    for found, code, why in asked:
        assert found.exit_code == code
        assert why in found.stderr
        assert SECRET not in found.stdout + found.stderr
        assert isinstance(found.exception, SystemExit)


def test_with_auth_the_service_can_listen_on_other_addresses(tmp_path: Path) -> None:
    """The start fails later and for another reason: this machine does not have the address."""
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: memory}}\n" + f"auth: {{tokens: [{{name: a, sha256: {'ab' * 32}}}]}}\n")
    serve = ["serve", "--host", "192.0.2.1", "--port", "0"]
    without = CliRunner().invoke(app, serve)
    assert without.exit_code == 2
    assert "--insecure" in without.stderr
    command = [sys.executable, "-m", "tableside", *serve, "--config", str(config)]
    guarded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert guarded.returncode not in (0, 2)
    assert "--insecure" not in guarded.stderr
    assert "192.0.2.1" in guarded.stdout + guarded.stderr
