"""The token of a write: given by the caller, from the micro-batch, or generated."""

import re
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tableside_client.connection import Connection
from tableside_spark.executor.operation_batch import RESET, Token
from tableside_spark.executor.parts import PART
from tableside_spark.write import micro_batch
from tableside_spark.write.checkpoint import Content
from tableside_spark.write.micro_batch import MicroBatch
from tableside_spark.write.query_memory import sequence_of

WRITER_CHARACTERS_MAX = 128 - len(RESET)
SEQUENCE_MAX = 2**63 - 1

_RESERVED = re.compile(rf"({RESET}|{PART}[0-9a-f]{{5}})$")

TokenArgument = str | tuple[str, int] | None
"""A token argument: a writer's name for a single write, or a writer's name and an increasing sequence number."""


@dataclass(frozen=True, slots=True)
class TokenLease:
    """The token of a write, and the lock to keep during the write.

    `is_repeatable` is true if another run of the write has the same token.
    """

    token: Token | None = None
    hold: Callable[[], AbstractContextManager[None]] = nullcontext
    is_repeatable: bool = False


def require_consistent(given: TokenArgument, *, at_least_once: bool) -> None:
    """Raise `ValueError` for a token together with `at_least_once`."""
    if at_least_once and given is not None:
        raise ValueError("token= is for writes applied exactly once, at_least_once=True for writes without tokens")


def parse_token(given: TokenArgument) -> Token | None:
    """Validate a token argument."""
    if given is None:
        return None
    writer, sequence = (given, 0) if isinstance(given, str) else given
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARACTERS_MAX:
        raise ValueError(f"a token's writer is a string of 1 to {WRITER_CHARACTERS_MAX} characters")
    if _RESERVED.search(writer):
        raise ValueError(
            f"a token's writer does not end with {RESET}, or with {PART} and five hexadecimal digits: "
            "these suffixes are reserved for writers that are derived from it"
        )
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"a token's sequence is an integer from 0 to {SEQUENCE_MAX}")
    return Token(writer, sequence)


def acquire_token(
    frame: DataFrame, connection: Connection, table: str, given: TokenArgument, *, generate: bool, harmless: bool
) -> TokenLease:
    """Return the token of a batch write: the caller's, else the micro-batch's, else, with `generate`, a new one."""
    token = parse_token(given)
    if token is not None:
        return TokenLease(token, is_repeatable=True)
    if (batch := micro_batch.current_micro_batch(frame)) is not None:
        return micro_batch_token(batch, connection, table, harmless=harmless)
    return TokenLease(Token(f"spark-{uuid.uuid4()}", 0) if generate else None)


def micro_batch_token(batch: MicroBatch, connection: Connection, table: str, *, harmless: bool) -> TokenLease:
    """Return the token of a micro-batch: the query and the sequence of the micro-batch.

    `harmless` means that the rows may be applied again.
    """
    content = Content() if batch.checkpoint is None else batch.checkpoint.content(batch.number)
    sequence = sequence_of(connection, table, batch.query, batch.number, content, harmless=harmless)
    run, number, place = batch.run, batch.number, (connection.url, table)
    hold = nullcontext if run is None else lambda: micro_batch.WRITE_LOCKS.exclusive(run, number, place)
    return TokenLease(Token(batch.query, sequence), hold, is_repeatable=True)


def puts_carry_tokens(frame: DataFrame, given: TokenArgument, *, at_least_once: bool) -> bool:
    """Whether the puts of a DataFrame carry a token, which requires one put per key."""
    if at_least_once:
        return False
    return given is not None or frame.isStreaming or micro_batch.current_micro_batch(frame) is not None
