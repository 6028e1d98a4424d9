"""Runs work that is divided into pieces without an event loop."""

from typing import TypeVar

from tableside.core.concurrency import Pieces

Result = TypeVar("Result")


def finish(work: Pieces[Result]) -> Result:
    """Do all pieces, and return the result."""
    return counted(work)[0]


def counted(work: Pieces[Result]) -> tuple[Result, int]:
    """Do all pieces, and return the result and the number of times that other tasks could run."""
    pieces = 0
    while True:
        try:
            next(work)
        except StopIteration as finished:
            return finished.value, pieces
        pieces += 1
