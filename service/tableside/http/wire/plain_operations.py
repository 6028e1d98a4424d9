"""Decodes many operations in one step that have no members except the usual ones.

In JSON these are the key and the value or update. In Arrow a token and a default are usual as well: Spark sends them.

Every function returns None if an operation differs or may be invalid. Each operation must then be decoded separately,
which also finds the error of each invalid one.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import orjson

from ...core import Changes, Get, Operation, Put, TableError, TableSpec, Update, updates, values
from ...core.operations import Token


def plain_operations(raws: Sequence[Any], spec: TableSpec) -> Sequence[Operation] | None:
    """Decode JSON objects that are all gets, all unconditional puts, or all updates without other members."""
    nothing = [None] * len(raws)
    try:
        kinds = {raw["op"] for raw in raws}
        if kinds == {"get"} and max(map(len, raws)) == 2:
            return plain_gets([raw["key"] for raw in raws], spec)
        if kinds == {"put"} and max(map(len, raws)) == 3:
            texts = values.encode_all([raw["value"] for raw in raws])
            return None if texts is None else plain_puts([raw["key"] for raw in raws], texts, spec, nothing)
        if kinds == {"update"} and max(map(len, raws)) == 3:
            changes = _parsed_updates([raw["update"] for raw in raws])
            keys = [raw["key"] for raw in raws]
            return None if changes is None else plain_updates(keys, changes, spec, nothing, nothing)
    except (KeyError, TypeError):
        return None
    return None


def plain_gets(keys: list[Any], spec: TableSpec) -> list[Get] | None:
    """Return a get of each key."""
    return list(map(Get, keys)) if spec.key.all_valid(keys) else None


def plain_puts(
    keys: list[Any], texts: Sequence[bytes], spec: TableSpec, tokens: Sequence[Token | None]
) -> list[Put] | None:
    """Return an unconditional put of each canonical text."""
    if spec.key.has_names or not spec.key.all_valid(keys) or max(map(len, texts), default=0) > spec.value_bytes_max:
        return None
    return list(map(Put, keys, texts, repeat(None), repeat(False), repeat(None), tokens))


def plain_updates(
    keys: list[Any],
    changes: Sequence[Changes],
    spec: TableSpec,
    defaults: Sequence[bytes | None],
    tokens: Sequence[Token | None],
) -> list[Update] | None:
    """Return an update of each key."""
    if not spec.key.all_valid(keys):
        return None
    return list(map(Update, keys, changes, defaults, repeat(None), repeat(None), tokens))


def _parsed_updates(documents: Sequence[Any]) -> list[Changes] | None:
    """Parse updates, equal ones once. Return None if one is invalid. Raise TypeError if one cannot be encoded."""
    texts = list(map(orjson.dumps, documents))
    try:
        parsed = {text: updates.parse(document) for text, document in dict(zip(texts, documents, strict=True)).items()}
    except TableError:
        return None
    return [parsed[text] for text in texts]
