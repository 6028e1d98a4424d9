"""The inputs of the image, and the command of its builder, checked without building it."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from scripts.bootstrap import ROOT


def requirements(file: Path) -> Iterator[Requirement]:
    """Yield each requirement of a file, with its pinned version and its marker."""
    for text in re.findall(r"(?m)^([a-z0-9][^\\\n]*)", file.read_text()):
        yield Requirement(text.strip())


@pytest.mark.parametrize("name", ["image.txt", "image-build.txt"])
def test_the_image_has_the_tested_versions(name: str) -> None:
    tested = {(one.name, str(one.specifier)) for one in requirements(ROOT / "requirements" / "constraints.txt")}
    chosen = {(one.name, str(one.specifier)) for one in requirements(ROOT / "requirements" / name)}
    assert chosen
    assert chosen <= tested


@pytest.mark.parametrize("name", ["image.txt", "image-build.txt"])
def test_every_package_of_the_image_has_hashes(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+ .*\\\n +--hash=sha256:", entry)] == []


@pytest.mark.server
def test_the_builder_gets_the_version_the_commit_and_more_arguments() -> None:
    command, environment = [str(ROOT / "scripts" / "image"), "--no-cache", "--pull"], {**os.environ, "BUILDER": "echo"}
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    pattern = r"VERSION=(\S+) --build-arg REVISION=([0-9a-f]{40}|unknown) --tag tableside:(\S+) --no-cache --pull .\n"
    [(version, _, tag)] = re.findall(pattern, said)
    assert str(Version(version)) == version == tag


def test_the_build_context_contains_only_what_the_dockerfile_copies() -> None:
    copied = {
        word
        for line in re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text())
        for word in line.split()
    }
    sent = {line.removeprefix("!") for line in lines(ROOT / ".dockerignore") if line.startswith("!")}
    assert sent == copied


def lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
