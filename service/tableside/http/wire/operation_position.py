"""Finds the operation of a JSON batch where the body stops being JSON."""

import json
import re

SEARCHED_BYTES_MAX = 2**20
"""The search decodes the operations before the position again, so it is limited to a few milliseconds."""

_START = re.compile(rb'\s*\{\s*"operations"\s*:\s*\[')
_COMMA = re.compile(r"\s*,\s*")
_SPACE = re.compile(r"\s*")


def operation_at(body: bytes, position: int | None) -> int | None:
    """Return the index of the operation that contains the first wrong byte of a body.

    Return None if the byte is in no operation, or so far from the start that the search would take too long.
    """
    start = _START.match(body)
    if start is None or position is None or not start.end() <= position <= SEARCHED_BYTES_MAX:
        return None
    text = body[:position].decode(errors="replace")
    decoder, index, at = json.JSONDecoder(), 0, start.end()
    while True:
        try:
            _, at = decoder.raw_decode(text, _SPACE.match(text, at).end())  # type: ignore[union-attr]  # always matches
        except (ValueError, RecursionError):
            return index
        comma = _COMMA.match(text, at)
        if comma is None:
            return index if text[at:].isspace() or at == len(text) else None
        index, at = index + 1, comma.end()
