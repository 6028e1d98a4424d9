"""Under which token a frame is written: the caller's, the micro-batch's, or one made for the call."""

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tableside_spark.executor.operation_batch import RESET, Token
from tableside_spark.write import micro_batch

WRITER_CHARACTERS_MAX = 128 - len(RESET)
SEQUENCE_MAX = 2**63 - 1

Given = str | tuple[str, int] | None
"""A token as callers give it: a writer that writes once, or a writer and a sequence that rises with each write."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The token of one write, and what has to be held while it is written."""

    token: Token | None = None
    held: Callable[[], AbstractContextManager[None]] = nullcontext


def refuse_contradiction(given: Given, *, at_least_once: bool) -> None:
    """Refuse a token where none is wanted."""
    if at_least_once and given is not None:
        raise ValueError("token= is for writes that count once, at_least_once=True for those that may not")


def read(given: Given) -> Token | None:
    """The token that a caller gave."""
    if given is None:
        return None
    writer, sequence = (given, 0) if isinstance(given, str) else given
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARACTERS_MAX:
        raise ValueError(f"a token's writer is a string of 1 to {WRITER_CHARACTERS_MAX} characters")
    if writer.endswith(RESET):
        raise ValueError(f"a token's writer does not end with {RESET}: that is the name of deletes before updates")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"a token's sequence is an integer from 0 to {SEQUENCE_MAX}")
    return Token(writer, sequence)


def turn_of(frame: DataFrame, table: str, given: Given, *, made: bool) -> Turn:
    """The token of a write of a batch frame: the caller's, else the micro-batch's, else, with `made`, a new one."""
    token = read(given)
    if token is not None:
        return Turn(token)
    if (found := micro_batch.current(frame)) is not None:
        run, token = found
        return Turn(token, lambda: micro_batch.WRITES.one(run, token, table))
    return Turn(Token(f"spark-{uuid.uuid4()}", 0) if made else None)


def puts_carry_tokens(frame: DataFrame, given: Given, *, at_least_once: bool) -> bool:
    """Whether the puts of a frame are to have a token, and so to be one for each key."""
    if at_least_once:
        return False
    return given is not None or frame.isStreaming or micro_batch.current(frame) is not None
