"""Update and default documents with columns: parsed once on the driver, evaluated per row in the JVM."""

import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyspark.sql import Column, functions as F
from pyspark.sql.types import DateType, TimestampType

from tableside_client.operators import (
    EACH,
    MERGE_PATCH,
    OPERATORS,
    WHOLE_UPDATE,
    Kind,
    UpdateOperator,
    require_operators,
)
from tableside_spark.plan.json_columns import Check
from tableside_spark.versions import require

_SCALARS = (str, bool, int, float, dt.date, Decimal)
_SPACES = " \t\n\r"
"""The characters that JSON allows around a value."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that differs between rows. `each` means that it is an array of elements, with `modifiers` beside it."""

    operator: UpdateOperator
    label: str
    column: Column
    each: bool = False
    modifiers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operands(self) -> frozenset[Kind]:
        """The kinds of values that are accepted."""
        return EACH if self.each else self.operator.operands

    @property
    def folded(self) -> frozenset[Kind]:
        """The kinds of values whose rows can be folded."""
        return self.operator.folded & ({"array"} if self.each else self.operands)

    def with_elements(self, elements: Column) -> Column:
        """Return the operand with an array of elements."""
        assert self.operator.elements is not None
        modifiers = [value_column(value).alias(name) for name, value in self.modifiers.items()]
        return F.struct(elements.alias(self.operator.elements), *modifiers)


Template = dict[str, Any]
"""A document whose values are templates, positions of leaves (int), or constant columns."""


@dataclass(slots=True)
class Document:
    """A parsed update document: its operators, its structure and its leaves."""

    operators: list[UpdateOperator]
    template: Template = field(default_factory=dict)
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def is_idempotent(self) -> bool:
        """Whether applying all updates since some time again, in their order, changes nothing."""
        return all(operator.is_idempotent for operator in self.operators)

    @property
    def is_foldable(self) -> bool:
        """Whether all of its operators can be folded, if their operands can."""
        return all(operator.fold is not None for operator in self.operators)

    def struct(self, columns: Sequence[Column]) -> Column:
        """Return the document as a struct column, with `columns` in place of the leaves."""
        return _struct(self.template, columns)


def read_update(update: Mapping[str, Any] | Column) -> Document:
    """Parse operators, a merge patch, or a column of whole updates. Raises `ValueError` for a mixture or others."""
    if isinstance(update, Column):
        return Document([WHOLE_UPDATE], leaves=[Leaf(WHOLE_UPDATE, "update", update)])
    if not any(name.startswith("$") for name in update):
        document = Document([MERGE_PATCH])
        document.template.update(_merge_template(document, update, ()))
        return document
    require_operators(update)
    document = Document([OPERATORS[name] for name in update])
    paths: list[str] = []
    for operator, (name, arguments) in zip(document.operators, update.items(), strict=True):
        if name == "$unset":
            own = list(arguments) if isinstance(arguments, Iterable) else [arguments]
            if isinstance(arguments, str) or not all(isinstance(path, str) for path in own):
                raise ValueError(f"$unset takes a list of paths, such as ['a.b'], not {arguments!r}")
            document.template[name] = F.array(*[F.lit(path) for path in own]).cast("array<string>")
        elif isinstance(arguments, Mapping):
            own = list(arguments)
            document.template[name] = {path: _operand(document, operator, path, arguments[path]) for path in own}
        else:
            raise ValueError(f"{name} takes a mapping of paths, not {type(arguments).__name__}")
        paths += own
    for path, following in pairwise(sorted(paths)):
        if following == path or following.startswith(f"{path}."):
            raise ValueError(f"two operators use the path {path!r}")
    return document


def value_column(value: Any) -> Column:
    """Return a value as a column: columns are unchanged, mappings become structs, lists become arrays."""
    match value:
        case Column():
            return value
        case Mapping():
            return object_column({name: value_column(member) for name, member in value.items()})
        case None:
            return F.lit(None).cast("string")
        case list() | tuple():
            return _list_column(value)
        case _ if isinstance(value, _SCALARS):
            return _literal(value)
    raise ValueError(f"a document contains columns and JSON values, not {type(value).__name__}")


def object_column(members: Mapping[str, Column]) -> Column:
    """Return an object of columns as a struct, or as a map without entries: Spark 3.5 has no structs without fields."""
    if not members:
        return F.create_map().cast("map<string,string>")
    return F.struct(*[column.alias(name) for name, column in members.items()])


def _operand(document: Document, operator: UpdateOperator, path: str, operand: Any) -> Any:
    label = f"{operator.name} {path}"
    if operator.elements is None or not isinstance(operand, Mapping) or operator.elements not in operand:
        return _add_leaf(document, Leaf(operator, label, value_column(operand)))
    modifiers = {name: value for name, value in operand.items() if name != operator.elements}
    if unknown := modifiers.keys() - operator.modifiers:
        raise ValueError(f"{label}: {operator.elements} does not allow {min(unknown)} beside it")
    if any(map(_has_column, modifiers.values())):
        # The rows may have different modifiers, so that they are applied one after the other.
        return _add_leaf(document, Leaf(replace(operator, folded=frozenset()), label, value_column(operand)))
    return _add_leaf(document, Leaf(operator, label, value_column(operand[operator.elements]), True, modifiers))


def _merge_template(document: Document, patch: Mapping[str, Any], path: tuple[str, ...]) -> Template:
    template: Template = {}
    for name, value in patch.items():
        here = (*path, name)
        if isinstance(value, Mapping):
            template[name] = _merge_template(document, value, here)
        else:
            template[name] = _add_leaf(document, Leaf(MERGE_PATCH, ".".join(here), value_column(value)))
    return template


def _add_leaf(document: Document, leaf: Leaf) -> int:
    document.leaves.append(leaf)
    return len(document.leaves) - 1


def _struct(template: Template, columns: Sequence[Column]) -> Column:
    members = []
    for name, part in template.items():
        column = (
            part if isinstance(part, Column) else columns[part] if isinstance(part, int) else _struct(part, columns)
        )
        members.append(column.alias(name))
    return F.struct(*members)


def _literal(value: Any) -> Column:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON cannot represent {value}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} exceeds 64 bits")
    if isinstance(value, dt.datetime):
        # Spark's own conversion of times before 1582 changes their day.
        try:
            return F.lit(value.astimezone(dt.UTC).isoformat()).cast(TimestampType())
        except (OverflowError, ValueError) as error:
            raise ValueError(f"{value} cannot be converted to UTC in the years 1 to 9999") from error
    return F.lit(value.isoformat()).cast(DateType()) if isinstance(value, dt.date) else F.lit(value)


def _list_column(values: Sequence[Any]) -> Column:
    """Return an array if the elements have one type, otherwise a variant, so that no element changes its type."""
    alike = len({type(value) for value in values}) == 1 and isinstance(values[0], _SCALARS)
    if alike or _has_column(values):
        return F.array(*[value_column(value) for value in values])
    if not values:
        return F.array().cast("array<string>")
    require("a list of values of several types")
    return F.parse_json(F.lit(json.dumps(list(values), default=_not_in_json, allow_nan=False)))


def _has_column(value: Any) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return any(map(_has_column, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, Column)


def _not_in_json(value: Any) -> Any:
    raise ValueError(
        f"a list of objects or of values of several types contains JSON values, not {type(value).__name__}: "
        "give this value as a column, such as F.lit(value)"
    )


def text_checks(update: Column) -> list[Check]:
    """Return the conditions for texts that would change the array, with the problem that each of them means."""
    documents = F.from_json(F.concat(F.lit("["), update, F.lit("]")), "array<string>")
    return [
        (_trimmed(update) == "", "the update is an empty text"),
        (F.coalesce(F.size(documents), F.lit(-1)) != 1, "the update is not one JSON document"),
    ]


def elements(text: Column) -> Column:
    """Return an update, or the elements of an array of updates, or null for an empty array."""
    trimmed = _trimmed(text)
    inner = F.nullif(_trimmed(trimmed.substr(F.lit(2), F.length(trimmed) - 2)), F.lit(""))
    return F.when(F.startswith(trimmed, F.lit("[")), inner).otherwise(text)


def _trimmed(text: Column) -> Column:
    return F.btrim(text, F.lit(_SPACES))
