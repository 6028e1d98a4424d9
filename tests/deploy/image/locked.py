"""What a file of locked requirements names. Knows nothing of what is installed."""

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement


def requirements(file: Path) -> Iterator[Requirement]:
    """Return each requirement of a file, with its one version and its marker."""
    for text in re.findall(r"(?m)^([a-z0-9][^\\\n]*)", file.read_text()):
        yield Requirement(text.strip())
