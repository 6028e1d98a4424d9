"""Runs work that is divided into pieces without an event loop."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tableside.core import TableError
from tableside.core.concurrency import LongPieces

Result = TypeVar("Result")


def finish(work: LongPieces[Result]) -> Result:
    """Do all pieces, and return the result."""
    return counted(work)[0]


def counted(work: LongPieces[Result]) -> tuple[Result, int]:
    """Do all pieces, and return the result and the number of times that other tasks could run."""
    result, pieces = done(work)
    return result, len(pieces)


def done(work: LongPieces[Result]) -> tuple[Result, list[Callable[[], Any] | None]]:
    """Do all pieces, and return the result and the pieces, None for each short one."""
    pieces: list[Callable[[], Any] | None] = []
    proceed = partial(next, work)
    while True:
        try:
            piece = proceed()
        except StopIteration as finished:
            return finished.value, pieces
        pieces.append(piece)
        proceed = partial(next, work)
        if piece is not None:
            try:
                proceed = partial(work.send, piece())
            except TableError as error:
                proceed = partial(work.throw, error)
