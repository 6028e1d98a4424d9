"""What the image is built from, without building it."""

import re
from pathlib import Path

import pytest

from deploy.image.locked import requirements
from scripts.bootstrap import ROOT


@pytest.mark.parametrize("name", ["image.txt", "image-build.txt"])
def test_what_goes_into_the_image_has_the_versions_that_are_tested(name: str) -> None:
    tested = {(one.name, str(one.specifier)) for one in requirements(ROOT / "requirements" / "constraints.txt")}
    chosen = {(one.name, str(one.specifier)) for one in requirements(ROOT / "requirements" / name)}
    assert chosen
    assert chosen <= tested


@pytest.mark.parametrize("name", ["image.txt", "image-build.txt"])
def test_every_package_of_the_image_has_hashes(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+ .*\\\n +--hash=sha256:", entry)] == []


def test_neither_spark_nor_a_tool_of_the_tests_is_among_them() -> None:
    names = {requirement.name for requirement in requirements(ROOT / "requirements" / "image.txt")}
    assert {"fastapi", "rocksdict", "asyncpg", "aioboto3", "redis"} <= names
    assert not {"pyspark", "pandas", "pytest", "hypothesis", "mypy", "ruff", "pip", "setuptools"} & names


def test_the_builder_is_sent_what_the_dockerfile_copies_and_no_more() -> None:
    copied = {
        word
        for line in re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text())
        for word in line.split()
    }
    sent = {line.removeprefix("!") for line in lines(ROOT / ".dockerignore") if line.startswith("!")}
    assert sent == copied


def lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
