"""Tokens of writes: the caller's, or tokens that the client creates so that a retry counts once."""

import itertools
import uuid
from typing import TypeAlias

WRITER_CHARACTERS_MAX = 128
SEQUENCE_MAX = 2**63 - 1

TokenArgument: TypeAlias = str | tuple[str, int] | None
"""A text that identifies one write, or a writer's name and a sequence number that rises with each of its writes."""


def parse_token(token: TokenArgument) -> tuple[str, int] | None:
    """Return the writer and the sequence of a token. Raises `ValueError` if one is out of range.

    A text is a token of one use, as in the header `Idempotency-Key`: its sequence is 1.
    """
    if token is None:
        return None
    writer, sequence = (token, 1) if isinstance(token, str) else token
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARACTERS_MAX:
        raise ValueError(f"the writer of a token is a string of 1 to {WRITER_CHARACTERS_MAX} characters")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"the sequence of a token is an integer from 0 to {SEQUENCE_MAX}")
    return writer, sequence


class TokenSource:
    """Creates the tokens of one writer, with rising sequences. The writer's name is unique."""

    def __init__(self) -> None:
        self._writer = f"client-{uuid.uuid4().hex}"
        self._sequences = itertools.count(1)

    def next(self) -> tuple[str, int]:
        """Return the next token."""
        return self._writer, next(self._sequences)
