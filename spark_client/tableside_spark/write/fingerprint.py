"""What a run was asked for, as texts that are equal if the same program asks again."""

import datetime as dt
import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql import Column

TEXT_CHARACTERS_MAX = 2_000
"""The maximum length of a text. The rest of a longer one is represented by a digest."""

_DEFAULTS = {"nulls": '"write"', "decimals": '"number"', "fold": "true"}
"""Arguments with these texts are omitted, as arguments without a value are."""

_VOLATILE = (
    ("Origin", r"Origin\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "Origin"),  # the line of the program
    (r"\[B@", r"\[B@[0-9a-f]+", "bytes"),  # the address of a binary literal
    (r"\b(?:rand\w*|uniform|uuid|shuffle)\(", r"-?\b\d{9,}L?\b", "seed"),
    (r"->|[Ll]ambda", r"\b([xyz])_\d+\b", r"\1"),  # variables of functions are numbered in each process
)
"""What differs in the expression of an equal column: if the first pattern occurs, the second is replaced."""


def fingerprint(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a write as texts, without those that have their default."""
    texts = {name: _limited(_text(argument)) for name, argument in arguments.items() if argument is not None}
    return {name: text for name, text in texts.items() if _DEFAULTS.get(name) != text}


def differences(asked: Mapping[str, str], before: Mapping[str, str]) -> str:
    """Return how two fingerprints differ, such as `update: {"$inc": {"n": 2}} was {"$inc": {"n": 1}}`, or ""."""
    names = [name for name in {**before, **asked} if asked.get(name) != before.get(name)]
    return "; ".join(f"{name}: {asked.get(name, 'none')} was {before.get(name, 'none')}" for name in names)


def _text(argument: Any) -> str:
    """Return a document as JSON with the expressions of its columns, and other objects by the names of their types."""
    match argument:
        case Column():
            return _column_text(argument)
        case Mapping():
            members = sorted((json.dumps(name, ensure_ascii=False), _text(argument[name])) for name in argument)
            return f"{{{', '.join(f'{name}: {text}' for name, text in members)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_text, argument))}]"
        case None | str() | bool() | int() | float():
            return json.dumps(argument, ensure_ascii=False)
        case dt.date() | Decimal():
            return str(argument)
    return str(getattr(argument, "__qualname__", type(argument).__qualname__))


def _column_text(column: Any) -> str:
    text = str(column).removeprefix("Column<'").removesuffix("'>")
    for marker, pattern, replacement in _VOLATILE:
        if re.search(marker, text):
            text = re.sub(pattern, replacement, text)
    return text


def _limited(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return f"{text[:TEXT_CHARACTERS_MAX]}… (SHA-256 {hashlib.sha256(text.encode()).hexdigest()})"
