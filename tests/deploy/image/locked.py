"""Read files of locked requirements."""

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement


def requirements(file: Path) -> Iterator[Requirement]:
    """Yield each requirement of a file, with its pinned version and its marker."""
    for text in re.findall(r"(?m)^([a-z0-9][^\\\n]*)", file.read_text()):
        yield Requirement(text.strip())
