"""JSON documents with columns of a frame: values, updates and defaults, one for each row."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.frames.kinds import check_columns
from tableside_client.json_writer import UNWRITABLE, JsonWriter, json_kind, require_json_type
from tableside_client.operators import EACH, OPERATORS, Column, UpdateOperator, require_operators

ROWS_PER_SLICE = 10_000
"""The maximum number of rows whose values exist as Python objects at a time."""

_WRITER = JsonWriter()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column in a document. `label` is its name in messages. `each` means that its values are arrays of elements."""

    column: str
    label: str
    operator: UpdateOperator | None = None
    each: bool = False

    def require_type(self, kind: pa.DataType) -> None:
        """Raise `ValueError` for a type that JSON cannot represent, or that the operator does not accept."""
        require_json_type(self.label, kind)
        accepted = EACH if self.each else None if self.operator is None else self.operator.operands
        if accepted is not None and json_kind(kind) not in accepted:
            raise ValueError(f"{self.label} does not accept {kind}")


Piece = str | Leaf


def object_pieces(value: Any, label: str = "", operator: UpdateOperator | None = None) -> Iterator[Piece]:
    """Yield the JSON text of a value in pieces, with a leaf for each column. Raises `ValueError` for other values."""
    match value:
        case Column():
            yield Leaf(value.name, label or value.name, operator)
        case Mapping():
            yield from _members(value, lambda _, member: object_pieces(member, label))
        case list() | tuple():
            for separator, element in zip(chain("[", repeat(",")), value, strict=False):
                yield separator
                yield from object_pieces(element, label)
            yield "]" if value else "[]"
        case _:
            yield _constant(value)


def update_pieces(update: Any) -> Iterator[Piece]:
    """Yield an update in pieces, its parts separated by commas. Raises `ValueError` for one that is not valid."""
    parts = [update] if isinstance(update, Mapping) else update
    if not isinstance(parts, list | tuple) or not parts or not all(isinstance(part, Mapping) for part in parts):
        raise ValueError(f"an update is a mapping or a list of mappings, not {type(update).__name__}")
    for position, part in enumerate(parts):
        yield "," if position else ""
        if any(str(name).startswith("$") for name in part):
            require_operators(part)
            yield from _members(part, _operator_pieces)
        else:
            yield from _patch_pieces(part, ())


def _operator_pieces(name: str, arguments: Any) -> Iterator[Piece]:
    if not isinstance(arguments, Mapping):  # the paths of $unset
        return object_pieces(arguments)
    return _members(arguments, lambda path, operand: _operand_pieces(OPERATORS[name], f"{name} {path}", operand))


def _operand_pieces(operator: UpdateOperator, label: str, operand: Any) -> Iterator[Piece]:
    elements = operator.elements
    if elements is None or not isinstance(operand, Mapping) or not isinstance(operand.get(elements), Column):
        return object_pieces(operand, label, operator)
    leaf = Leaf(operand[elements].name, label, operator, each=True)
    return _members(operand, lambda name, value: iter([leaf]) if name == elements else object_pieces(value, label))


def _patch_pieces(patch: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Piece]:
    def member(name: str, value: Any) -> Iterator[Piece]:
        here = (*path, name)
        return _patch_pieces(value, here) if isinstance(value, Mapping) else object_pieces(value, ".".join(here))

    return _members(patch, member)


def _members(members: Mapping[str, Any], pieces: Callable[[str, Any], Iterator[Piece]]) -> Iterator[Piece]:
    for separator, (name, value) in zip(chain("{", repeat(",")), members.items(), strict=False):
        yield f"{separator}{_constant(str(name))}:"
        yield from pieces(str(name), value)
    yield "}" if members else "{}"


def _constant(value: Any) -> str:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} exceeds 64 bits")
    try:
        return _WRITER.text(value)
    except UNWRITABLE as error:
        raise ValueError(f"a document contains columns and JSON values, not {value!r}") from error


@dataclass
class RowDocuments:
    """Makes documents of a frame's rows. `problems` are, for each row, why it cannot be sent, or None."""

    columns: Mapping[str, pa.Array]
    problems: list[str | None]
    _texts: dict[str, list[str]] = field(default_factory=dict)

    def texts(self, pieces: Sequence[Piece]) -> list[str]:
        """Return the JSON text of each row. Raises `ValueError` for a column that does not exist or does not fit."""
        leaves = [piece for piece in pieces if isinstance(piece, Leaf)]
        check_columns(list(self.columns), [leaf.column for leaf in leaves])
        for leaf in leaves:
            column = self.columns[leaf.column]
            leaf.require_type(column.type)
            if leaf.each or (leaf.operator is not None and leaf.operator.computes):
                self.add_nulls(column, f"{leaf.label}: the operand is null; filter such rows")
        parts = [repeat(piece) if isinstance(piece, str) else self._column_texts(piece) for piece in pieces]
        rows = zip(range(len(self.problems)), *parts, strict=False)
        return ["".join(texts) for _, *texts in rows]

    def add_problem(self, row: int, problem: str) -> None:
        """Note why a row cannot be sent, unless it has another problem."""
        if self.problems[row] is None:
            self.problems[row] = problem

    def add_nulls(self, column: pa.Array, problem: str) -> None:
        """Note the problem of rows whose value is null."""
        for row in pc.indices_nonzero(column.is_null()).to_pylist() if column.null_count else ():
            self.add_problem(row, problem)

    def _column_texts(self, leaf: Leaf) -> list[str]:
        """Return the JSON text of each value. The text of a value that JSON cannot represent is empty."""
        if leaf.column in self._texts:
            return self._texts[leaf.column]
        column, texts = self.columns[leaf.column], list[str]()
        for start in range(0, len(column), ROWS_PER_SLICE):
            part = column.slice(start, ROWS_PER_SLICE)
            try:
                texts += _WRITER.texts(part)
            except UNWRITABLE:
                for row, problem in enumerate(_WRITER.problems(part)):
                    texts += [""] if problem else _WRITER.texts(part.slice(row, 1))
                    if problem is not None:
                        self.add_problem(start + row, f"column {leaf.label} contains {problem}")
        self._texts[leaf.column] = texts
        return texts
