"""A public CI does what everybody can do: it checks the tree out with its history, and runs `.ci/run`."""

from typing import Any

import pytest
import yaml

from scripts.bootstrap import ROOT


@pytest.fixture
def workflow() -> dict[Any, Any]:
    """What it is told."""
    [file] = (ROOT / ".github" / "workflows").iterdir()
    described: dict[Any, Any] = yaml.safe_load(file.read_text())
    return described


def test_its_only_command_is_the_one_of_the_tree(workflow: dict[Any, Any]) -> None:
    [job] = workflow["jobs"].values()
    checkout, test = job["steps"]
    assert checkout["uses"].startswith("actions/checkout@v")
    assert checkout["with"] == {"fetch-depth": 0, "persist-credentials": False}
    assert test == {"run": ".ci/run"}
    assert job["timeout-minutes"] == 90


def test_it_may_read_the_tree_and_nothing_else(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in str(workflow)
    assert "pull_request_target" not in workflow[True]  # the word `on`, as YAML reads it
