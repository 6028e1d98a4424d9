"""Finding bytes in files that are too large to be read at once."""

import mmap
from collections.abc import Iterable
from pathlib import Path


def holds(files: Iterable[Path], wanted: bytes) -> bool:
    """Return whether any of the files has these bytes in it."""
    return any(_holds(file, wanted) for file in files)


def _holds(file: Path, wanted: bytes) -> bool:
    if not file.stat().st_size:
        return False
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return whole.find(wanted) != -1
