"""The public CI checks out the tree with its history and runs `.ci/run`, as contributors can."""

from typing import Any

import pytest
import yaml

from scripts.bootstrap import ROOT


@pytest.fixture
def workflow() -> dict[Any, Any]:
    """The workflow's definition."""
    [file] = (ROOT / ".github" / "workflows").iterdir()
    described: dict[Any, Any] = yaml.safe_load(file.read_text())
    return described


def test_its_only_command_is_the_script_of_the_tree(workflow: dict[Any, Any]) -> None:
    [job] = workflow["jobs"].values()
    checkout, test = job["steps"]
    assert checkout["uses"].startswith("actions/checkout@v")
    assert checkout["with"] == {"fetch-depth": 0, "persist-credentials": False}
    assert test == {"run": ".ci/run"}
    assert job["timeout-minutes"] == 90


def test_it_has_only_read_permission(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in str(workflow)
    assert "pull_request_target" not in workflow[True]  # YAML reads the word `on` as True
