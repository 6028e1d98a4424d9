"""Search bytes in files that are too large to read into memory."""

import mmap
from collections.abc import Iterable
from pathlib import Path


def contains(files: Iterable[Path], wanted: bytes) -> bool:
    """Return whether any of the files contains these bytes."""
    return any(_contains(file, wanted) for file in files)


def _contains(file: Path, wanted: bytes) -> bool:
    if not file.stat().st_size:
        return False
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return whole.find(wanted) != -1
