"""The service's update operators, with all that clients know about each of them, and columns as operands."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["null", "boolean", "integer", "number", "string", "array", "object", "mixed"]
"""The kinds of JSON values. The values of a `mixed` operand may have several kinds."""

Fold: TypeAlias = Literal["sum", "least", "greatest", "append", "union", "last"]
"""How the operands of updates at one path become one operand.

`last` takes the last operand, `append` all elements in order, and `union` the distinct elements.
"""

_ANY: frozenset[Kind] = frozenset(get_args(Kind))
_NUMBERS: frozenset[Kind] = frozenset({"integer", "number"})
_ORDERED: frozenset[Kind] = _NUMBERS | {"string"}


@dataclass(frozen=True, slots=True)
class UpdateOperator:
    """An update operator.

    Attributes:
        name: The name, as in updates.
        is_idempotent: True if nothing changes when all updates since some time are applied again in their order.
        operands: The kinds of operands that it accepts.
        fold: How the updates of a record at one path become a single update. None if they are never folded: they are
            listed, and applied one after the other.
        folded: The kinds of operands for which the folded update has exactly the result of the listed ones. Sums of
            floating-point numbers, for example, depend on the order.
        elements: The member of an operand that contains several elements, as in `{"$each": […]}`. None if the operator
            takes no elements.
        modifiers: The members that an operand may have beside `elements`. If they are constant, the rows are folded.
    """

    name: str
    is_idempotent: bool
    operands: frozenset[Kind]
    fold: Fold | None = None
    folded: frozenset[Kind] = frozenset()
    elements: str | None = None
    modifiers: frozenset[str] = frozenset()

    @property
    def computes(self) -> bool:
        """Whether it computes with its operand, or compares it. Such an operator does not accept null."""
        return self.operands <= _ORDERED


OPERATORS = {
    operator.name: operator
    for operator in (
        UpdateOperator("$set", True, _ANY, "last", _ANY),
        UpdateOperator("$unset", True, _ANY, "last", _ANY),
        UpdateOperator("$inc", False, _NUMBERS, "sum", frozenset({"integer"})),
        UpdateOperator("$min", True, _ORDERED, "least", _ORDERED),
        UpdateOperator("$max", True, _ORDERED, "greatest", _ORDERED),
        UpdateOperator("$mul", False, _NUMBERS),
        UpdateOperator("$push", False, _ANY, "append", _ANY, "$each", frozenset({"$slice", "$sort"})),
        UpdateOperator("$addToSet", True, _ANY, "union", _ANY, "$each"),
        UpdateOperator("$pull", True, _ANY, "union", _ANY, "$in"),
        UpdateOperator("$setOnInsert", True, _ANY),
    )
}
"""The operators by name."""

MERGE_PATCH = UpdateOperator(
    "merge patch", True, _ANY, "last", frozenset({"null", "boolean", "integer", "number", "string", "array"})
)
"""A member of a merge patch. Objects are merged, so two of them are not equal to the later one alone."""

WHOLE_UPDATE = UpdateOperator("update", False, _ANY)
"""A whole update in a column, whose operators the client does not read."""

EACH: frozenset[Kind] = frozenset({"array", "mixed"})
"""The kinds of operands of `$each` and `$in`. Arrays are folded."""


def require_operators(names: Iterable[str]) -> None:
    """Raise `ValueError` if one of the names of an operator document is not an operator."""
    if unknown := [name for name in names if name not in OPERATORS]:
        raise ValueError(f"an update has only operators ({', '.join(OPERATORS)}) or none; this has {unknown[0]!r}")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a frame. In an update or a default, it stands for the value of each row."""

    name: str


def col(name: str) -> Column:
    """Name a column of a frame, for an update or a default of `update_frame`."""
    if not isinstance(name, str):
        raise TypeError(f"col takes the name of a column, not {type(name).__name__}")
    return Column(name)
