"""The commands for generations, and `load --replace`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tableside_client import Client

pytestmark = pytest.mark.server

Command = Callable[..., Result]

ROWS = "id,n\nada,2\nalan,2\n"
NEW = {"ada": {"n": 2}, "alan": {"n": 2}}
OLD = {"ada": {"n": 1}, "grace": {"n": 1}}


def records(client: Client, table: str) -> dict[str, object]:
    return {record.key: record.value for record in client.table(table).scan()}


@pytest.fixture
def table(client: Client, request: pytest.FixtureRequest) -> str:
    """A table with the records `OLD` that no other case uses."""
    name = f"cli_{abs(hash(request.node.name))}"
    client.table(name).load(OLD.items())
    return name


def test_a_table_is_replaced_listed_and_rolled_back(
    tableside: Command, client: Client, table: str, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text(ROWS)
    done = tableside("load", table, "people.csv", "--key", "id", "--replace")
    assert (done.exit_code, done.stdout) == (0, f"2 records stored in {table}, 0 failed\n")
    assert records(client, table) == NEW
    old, new = (line.split("\t") for line in tableside("generations", table).stdout.splitlines())
    assert (old[:3], old[-1]) == (["1", "kept", "-"], "-")
    assert (new[:2], new[-1]) == (["2", "current"], "people.csv")
    assert tableside("get", f"{table}@1", "grace").stdout == '{"n": 1}\n'
    assert len(tableside("scan", f"{table}@1").stdout.splitlines()) == 2
    back = tableside("activate", table, 1, "--expected", 2)
    assert (back.exit_code, back.stdout) == (0, f"generation 1 of {table} is current\n")
    assert records(client, table) == OLD
    for arguments, code in (
        (("activate", table, 2, "--expected", 2), "precondition_failed"),
        (("activate", table, 7), "generation_not_found"),
        (("put", f"{table}@2", "ada", "{}"), "generation_sealed"),
    ):
        refused = tableside(*arguments)
        assert (refused.exit_code, code in refused.stderr) == (1, True)
    (tmp_path / "empty.csv").write_text("id,n\n")
    assert tableside("load", table, "empty.csv", "--key", "id", "--replace", "--allow-empty").exit_code == 0
    assert records(client, table) == {}


@pytest.mark.parametrize(
    ("content", "options", "code", "message"),
    [
        ("id,n\nada,2\n,3\n", ["--replace"], 1, "1 rows failed, so"),
        ("id,n\n", ["--replace"], 1, "--allow-empty"),
        ("id,n\nada,2\n", ["--allow-empty"], 2, "needs --replace"),
    ],
)
def test_a_file_that_cannot_replace_a_table_leaves_it_as_it_was(
    tableside: Command,
    client: Client,
    table: str,
    tmp_path: Path,
    content: str,
    options: list[str],
    code: int,
    message: str,
) -> None:
    (tmp_path / "people.csv").write_text(content)
    refused = tableside("load", table, "people.csv", "--key", "id", *options)
    assert refused.exit_code == code
    assert message in refused.stderr
    assert records(client, table) == OLD
    assert [one.state for one in client.table(table).generations()] == ["current"]
