"""The command line of `scripts/image` for the builder."""

import os
import re
import shutil
import subprocess

import pytest
from packaging.version import Version

from scripts.bootstrap import ROOT

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def arguments() -> str:
    """The arguments that the builder receives."""
    command = [str(ROOT / "scripts" / "image"), "--no-cache", "--pull"]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "BUILDER": "echo"}
    ).stdout


def test_the_image_gets_the_version_and_the_commit(arguments: str) -> None:
    version, revision, tag = re.findall(r"VERSION=(\S+) --build-arg REVISION=(\S+) --tag tableside:(\S+) ", arguments)[
        0
    ]
    assert str(Version(version)) == version
    assert revision == commit()
    assert tag == version


def test_more_arguments_are_passed_before_the_folder(arguments: str) -> None:
    assert arguments.endswith(" --no-cache --pull .\n")


def commit() -> str:
    """Return the commit that is checked out, or `unknown` without git or a repository."""
    if shutil.which("git") is None:
        return "unknown"
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"
