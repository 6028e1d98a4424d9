"""Bodies in parts, so that a large value is not copied."""

from collections.abc import Sequence
from typing import TypeAlias

Encoded: TypeAlias = bytes | Sequence[bytes | memoryview]
"""A body: as one text, or as its parts."""

PART_BYTES_MIN = 2**16
"""Shorter parts are joined with those before them."""


def join_short(parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the same bytes in as few parts as possible. Parts of `PART_BYTES_MIN` and more are not copied."""
    if max(map(len, parts)) < PART_BYTES_MIN:
        return [b"".join(parts)]
    found: list[bytes | memoryview] = []
    short: list[bytes | memoryview] = []
    for part in parts:
        if len(part) < PART_BYTES_MIN:
            short.append(part)
            continue
        found += [b"".join(short), part]
        short = []
    return [one for one in (*found, b"".join(short)) if one]


def joined(parts: Sequence[bytes | memoryview]) -> Encoded:
    """Return the body that has these parts: as one text if all are short."""
    [first, *others] = found = join_short(parts)
    return first if isinstance(first, bytes) and not others else found
