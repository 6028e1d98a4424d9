"""The Java packages of the state store form layers: each imports only the packages below it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.state_jar import SOURCES, sources

ROOT_PACKAGE = SOURCES / "tableside" / "state"
IMPORTS: dict[str, set[str]] = {
    "": {"http", "memory", "log"},
    "log": {"http"},
    "memory": set(),
    "http": set(),
}
"""The packages that a package below `tableside.state` may use. The empty name is `tableside.state` itself."""

USED = re.compile(r"\btableside\.state\.(?:([a-z]\w*)\.)?[A-Z]")
LINES_MAX = 400


def used(file: Path) -> Iterator[str]:
    """Yield the packages of the classes that a file names in full."""
    for match in USED.finditer(file.read_text(encoding="utf-8")):
        yield match[1] or ""


def package(file: Path) -> str:
    return ".".join(file.relative_to(ROOT_PACKAGE).parent.parts)


def test_the_packages_are_complete() -> None:
    assert {package(file) for file in sources()} == set(IMPORTS)


@pytest.mark.parametrize("name", IMPORTS)
def test_a_package_uses_only_the_packages_below_it(name: str) -> None:
    files = [file for file in sources() if package(file) == name]
    assert {each for file in files for each in used(file)} - {name} <= IMPORTS[name]
    assert all(f"package tableside.state{name and '.'}{name};" in file.read_text(encoding="utf-8") for file in files)
