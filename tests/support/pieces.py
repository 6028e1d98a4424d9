"""Runs work that is divided into pieces without an event loop."""

from typing import TypeVar

from tableside.core.concurrency import LongPieces

Result = TypeVar("Result")


def finish(work: LongPieces[Result]) -> Result:
    """Do all pieces, and return the result."""
    return counted(work)[0]


def counted(work: LongPieces[Result]) -> tuple[Result, int]:
    """Do all pieces, and return the result and the number of times that other tasks could run."""
    count = 0
    while True:
        try:
            long_piece = next(work)
        except StopIteration as finished:
            return finished.value, count
        if long_piece is not None:
            long_piece()
        count += 1
