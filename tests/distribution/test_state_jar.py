"""The build of the state store's jar runs only after changes. Tests of releases show that it is reproducible."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.bootstrap import ROOT
from servers.jdk import ensure_javac

pytestmark = [pytest.mark.daily, pytest.mark.jvm]
SOURCE = "spark_client/state_store/tableside/state/Small.java"
JAR = "spark_client/tableside_spark/state/tableside-state.jar"
SMALL = "package tableside.state;\n/** Small. */\nfinal class Small {\n  private Small() {}\n}\n"
FOR_JAVA_17 = bytes.fromhex("cafebabe0000003d")
FOR_SMALL = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Options that shorten the compiler's start."""

WITHOUT_JAVA = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one small class."""
    ensure_javac()
    return small_tree(tmp_path / "tree")


@pytest.mark.parametrize("file", [SOURCE, JAR])
def test_it_is_rebuilt_only_after_a_change(tree: Path, file: str) -> None:
    (tree / SOURCE.replace("Small", "Other")).write_text(SMALL.replace("Small", "Other"))
    made(tree)
    before = (tree / JAR).read_bytes()
    made(tree, WITHOUT_JAVA)  # nothing to do
    (tree / SOURCE.replace("Small", "Other")).unlink()
    (tree / file).write_bytes((tree / file).read_bytes() + b"\n")
    made(tree)
    assert (tree / JAR).read_bytes() != before
    with zipfile.ZipFile(tree / JAR) as jar:
        assert "tableside/state/Other.class" not in jar.namelist()


def test_without_a_compiler_the_set_up_prints_one_message_and_continues(tree: Path) -> None:
    said = made(tree, WITHOUT_JAVA, options=["--if-possible"])
    assert said == "[setup] no javac 17 or later: the jar for Spark's state is not built (scripts/jar does it)\n"
    assert made(tree, WITHOUT_JAVA, options=["--if-possible"]) == ""
    assert not (tree / JAR).exists()
    assert made(tree, options=["--if-possible"]) == "[setup] compiling the state store …\n"
    assert (tree / JAR).exists()


def small_tree(folder: Path) -> Path:
    """Create a tree with the build scripts and one class."""
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / SOURCE).parent.mkdir(parents=True)
    (folder / SOURCE).write_text(SMALL)
    (folder / ".venv").mkdir()
    return folder


def made(
    tree: Path, environment: Mapping[str, str] | None = None, *, options: list[str] | None = None, code: int = 0
) -> str:
    """Build the jar and return the output."""
    command = [sys.executable, "-m", "scripts.state_jar", *(options or [])]
    full = {**os.environ, **FOR_SMALL, **(environment or {})}
    done = subprocess.run(
        command, cwd=tree, env=full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == code, done.stdout
    return done.stdout
