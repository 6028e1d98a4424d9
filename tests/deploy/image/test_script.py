"""The script that builds the image of a commit: what it has Docker do."""

import os
import re
import shutil
import subprocess

import pytest
from packaging.version import Version

from scripts.bootstrap import ROOT

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def said() -> str:
    """The command line that the builder is called with."""
    command = [str(ROOT / "scripts" / "image"), "--no-cache", "--pull"]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "BUILDER": "echo"}
    ).stdout


def test_the_image_is_built_with_the_version_and_the_commit_that_git_knows(said: str) -> None:
    version, revision, tag = re.findall(r"VERSION=(\S+) --build-arg REVISION=(\S+) --tag tableside:(\S+) ", said)[0]
    assert str(Version(version)) == version
    assert revision == commit()
    assert tag == version.replace("+", "_")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", tag)


def test_arguments_go_to_the_builder_before_the_folder(said: str) -> None:
    assert said.endswith(" --no-cache --pull .\n")


def commit() -> str:
    """Return the commit that is checked out, if there is one, and git to tell it."""
    if shutil.which("git") is None:
        return "unknown"
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else "unknown"
