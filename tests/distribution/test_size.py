"""The code does not grow unnoticed: `sizes.yaml` has the number of its lines and files, and they only fall."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from scripts.bootstrap import ROOT

SIZES = Path(__file__).with_name("sizes.yaml")
LANGUAGES = {
    "Python": {".py"},
    "Java": {".java"},
    "YAML, HTML, CSS and JavaScript": {".yaml", ".html", ".css", ".js"},
}
SLACK = {"lines": 100, "files": 3}
"""A number that exceeds its count by more than this must be lowered."""

CASES = [
    (directory, language, unit)
    for directory, languages in yaml.safe_load(SIZES.read_text()).items()
    for language in languages
    for unit in SLACK
]


class Size(NamedTuple):
    lines: int
    files: int


def size(directory: str, language: str) -> Size:
    """Count the tracked files of a language, and their lines."""
    listed = subprocess.run(["git", "ls-files", directory], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.splitlines() if Path(name).suffix in LANGUAGES[language]]
    existing = [file for file in files if file.exists()]
    return Size(sum(file.read_bytes().count(b"\n") for file in existing), len(existing))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the list of tracked files")
@pytest.mark.parametrize(("directory", "language", "unit"), CASES)
def test_the_code_does_not_grow(directory: str, language: str, unit: str) -> None:
    counted = size(directory, language)
    number, count = yaml.safe_load(SIZES.read_text())[directory][language][unit], getattr(counted, unit)
    line = f"`{language}: {{lines: {counted.lines}, files: {counted.files}}}` below `{directory}` in {SIZES}"
    assert count <= number, f"{count - number} {unit} too many: remove some, or write {line}, and say why in the commit"
    assert count >= number - SLACK[unit], f"{number - count} {unit} fewer: write {line}"
