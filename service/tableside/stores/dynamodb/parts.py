"""Divides large batches of writes into parts, because an item takes up to 60 times the memory of its JSON text."""

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ...core import NOT_READ, READ_BYTES_MAX, DeadlineExceeded, Outcome, chunks_of, size_bytes, value_bytes

OPERATIONS_MAX = 1000
"""How many writes one part has at most."""

TEXT_BYTES_MAX = 2**19
"""How many bytes of values and updates one part has at most, unless one write has more."""


async def in_parts(
    apply: Callable[[Sequence[Any], float], Coroutine[Any, Any, list[Outcome]]], writes: Sequence[Any], until: float
) -> list[Outcome]:
    """Apply the writes part by part, until the deadline or until the returned values exceed READ_BYTES_MAX."""
    outcomes, returned_bytes = list[Outcome](), 0
    for part in chunks_of(writes, OPERATIONS_MAX, TEXT_BYTES_MAX, size_bytes):
        if returned_bytes > READ_BYTES_MAX:
            results: list[Outcome] = [NOT_READ] * len(part)
        elif time.monotonic() >= until:
            results = [DeadlineExceeded("the deadline passed before the write was sent")] * len(part)
        else:
            results = await apply(part, until)
            returned_bytes += value_bytes(results)
        outcomes += results
    return outcomes
