"""The commands that use only the client, in this process, against a real service."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.running import Service
from tableside_cli import app


@pytest.fixture
def tableside(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process, in a directory of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, url: str = service.url, **environment: str) -> Result:
        variables = {"TABLESIDE_URL": url, "COLUMNS": "120", **environment}
        return CliRunner().invoke(app, [*map(str, arguments)], env=variables)

    return run
