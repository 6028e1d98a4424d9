"""Projections of many values to the same members, with a decoder that skips the names of the others too."""

from collections.abc import Callable
from functools import partial

import msgspec

from .errors import DeadlineExceeded

VALUES_MIN = 100
"""A decoder is made for at least so many values: making it takes as long as 20 to 200 projections without it."""
FIELDS_MAX = 32
"""The decoder compares each name in a value with each of the fields."""

NOT_PROJECTED = DeadlineExceeded("the deadline was over before the requested fields were extracted")

_MEMBERS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
_ESCAPED = frozenset('"\\') | frozenset(map(chr, range(32)))


def projection(fields: frozenset[str], count: int) -> Callable[[bytes], bytes]:
    """Return a function that reduces the text of a value to the given top-level members, to be used `count` times."""
    if count < VALUES_MIN or len(fields) > FIELDS_MAX or not _ESCAPED.isdisjoint("".join(fields)):
        return partial(_project, fields=fields)
    attributes = {f"member_{index}": name for index, name in enumerate(sorted(fields))}
    members = [(attribute, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for attribute in attributes]
    decoder = msgspec.json.Decoder(msgspec.defstruct("Projected", members, rename=attributes, gc=False))
    return lambda text: _ENCODER.encode(decoder.decode(text))


def _project(text: bytes, fields: frozenset[str]) -> bytes:
    """Return a value's text with only the given top-level members. What they contain is not decoded."""
    return _ENCODER.encode({name: member for name, member in _MEMBERS.decode(text).items() if name in fields})
