"""The tests that docs/migrating.md names exist."""

import re
from pathlib import Path

import pytest

from scripts.bootstrap import ROOT

NAMED = re.findall(r"`([\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)), ids=lambda part: str(part))
def test_the_named_tests_exist(file: str, test: str) -> None:
    places = [path for path in (ROOT / "tests").rglob(Path(file).name) if path.as_posix().endswith(file)]
    assert any(re.search(rf"def {test}\b", path.read_text(encoding="utf-8")) for path in places), places


def test_every_fault_is_listed() -> None:
    text = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert rows | {33, 34, 42, 46} == set(range(1, 52))
