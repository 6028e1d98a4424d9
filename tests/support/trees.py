"""Copies of the project's tree to build from, as new repositories or without git."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from scripts.bootstrap import ROOT
from servers.install import ensure_command

IDENTITY = ["-c", "user.name=Tests", "-c", "user.email=tests@localhost"]
NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
TIME = "2026-01-02T03:04:05Z"


def copied(folder: Path) -> Path:
    """Copy the current tree without git's history and ignored files."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", *ignored), symlinks=True)
    return folder


def commit(folder: Path) -> None:
    """Commit all files in a repository's folder. An empty commit is allowed."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "as it is")


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, with a fixed author and time."""
    command = [str(ensure_command("git", "git")), *IDENTITY, *arguments]
    times = {"GIT_AUTHOR_DATE": TIME, "GIT_COMMITTER_DATE": TIME}
    environment = {**os.environ, **NO_CONFIGURATION, **times}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def module(
    folder: Path, name: str, *arguments: str, code: int = 0, environment: Mapping[str, str] | None = None
) -> str:
    """Run a Python module in a folder, with additional environment variables. Return its stdout and stderr."""
    command = [sys.executable, "-m", name, *arguments]
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SOURCE_DATE_EPOCH"}}
    full = {**kept, **NO_CONFIGURATION, "PYTHONWARNINGS": "ignore", **(environment or {})}
    done = subprocess.run(command, cwd=folder, env=full, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
