"""The commands that use only the client, in this process, against real services."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.running import Service, running
from tableside_cli import app
from tableside_client import Client

CONFIG = """
stores: {a: {kind: memory}, b: {kind: memory}, both: {kind: partitioned, partitions: [a, b]}}
auto_create: true
default_store: a
tables:
  pairs: {store: a, key: {user: string, day: integer}}
  renamed: {store: a, key: {who: string, at: integer}}
  partitioned: {store: both, key: {user: string, day: integer}}
  partitioned_copy: {store: both, key: {user: string, day: integer}}
  unnamed: {store: both}
  short: {store: a, ttl_s: 100}
"""


@pytest.fixture
def tableside(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process, in a directory of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, url: str = service.url, **environment: str) -> Result:
        variables = {"TABLESIDE_URL": url, "COLUMNS": "120", **environment}
        return CliRunner().invoke(app, [*map(str, arguments)], env=variables)

    return run


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a service with composite keys, partitions and a default expiry."""
    directory = tmp_path_factory.mktemp("configured")
    (directory / "c.yaml").write_text(CONFIG)
    with running(directory, directory / "c.yaml") as service, Client(service.url) as client:
        yield client


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service that the commands use."""
    with Client(service.url) as client:
        yield client
