"""The members of a write's outcome that its answers have in all forms, each declared once.

The names are those of fields of `Written`. An answer lacks a member that is false or None. The values of headers are
JSON. Metrics count the flags among them (`core.operations.FLAGS`).
"""

from collections.abc import Collection
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from ...core import Written

Given: TypeAlias = tuple[tuple[str, Any], ...]
"""The names and values of the members that an answer has."""


class OutcomeMember(msgspec.Struct, frozen=True):
    """A member: what its header means, its result in JSON, and the outcomes that metrics count for it.

    Answers in Arrow have it if the request has the column `requires`, "" for any request. `form` is its type in JSON,
    `text` the schema of its header, `type` its type in Arrow, where an answer without it has the cell `absent`.
    """

    name: str
    header: str
    result: str
    counted: str
    requires: str = ""
    form: Any = bool
    text: dict[str, Any] = msgspec.field(default_factory=lambda: {"enum": ["true"]})
    type: pa.DataType = pa.bool_()
    absent: Any = False


OUTCOME_MEMBERS = (
    OutcomeMember(
        "replayed",
        "The write is a repetition by its token, and was not applied again.",
        "True for a repeated write, which was not applied again; else absent.",
        "Repeated writes, recognized by their token and not applied again",
    ),
    OutcomeMember(
        "superseded",
        "All members of the ordered write have higher orders.",
        "True if all members have higher orders; else absent.",
        "Ordered writes that arrived after newer ones, and changed nothing",
        requires="order",
    ),
)

_NAMES = [member.name for member in OUTCOME_MEMBERS]


def given_by(written: Written) -> Given:
    """Return the members that the answer to a write has."""
    return tuple([(name, value) for name in _NAMES if (value := getattr(written, name))])


def answered(columns: Collection[str]) -> Collection[OutcomeMember]:
    """Return the members that the rows of an answer have if the request has these columns."""
    return [member for member in OUTCOME_MEMBERS if not member.requires or member.requires in columns]
