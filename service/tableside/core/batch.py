"""Operations and outcomes in columns: one for each member, instead of an object for each record.

An absent option is an absent column. Code that handles columns names the ones that it understands (`has_only`), and
leaves the others to `transition`, which reads every member of a write. So a new member is never ignored.

A column is a list, or an Arrow array if a store has read many records of one format, or a request has many strings as
keys: an array is made in less time.
"""

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, cast, overload

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from .concurrency import gather_bounded
from .errors import Applied, TableError
from .operations import Get, Key, Operation, Outcome, Record, Written

Item = TypeVar("Item", covariant=True)
Cell = TypeVar("Cell")
Group = TypeVar("Group")

Applying: TypeAlias = Coroutine[Any, Any, Sequence[Outcome]]
"""A call that applies operations, and returns their outcomes."""


class Columns(Sequence[Item], Generic[Item]):
    """Structs of one `kind`, as a column for each field that has another value than the field's default.

    Either form is made from the other when it is requested.
    """

    __slots__ = ("_columns", "_count", "_items", "kind")

    def __init__(
        self, kind: type[Any], columns: Mapping[str, Sequence[Any]] | None, items: Sequence[Any] | None = None
    ) -> None:
        self.kind: Any = kind  # a class of structs
        self._columns = columns
        self._items = items
        self._count = len(items or ()) if columns is None else len(next(iter(columns.values())))

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The columns by the names of their fields."""
        if self._columns is None:
            self._columns = _divided(self.kind, self._made())
        return self._columns

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Item | Self:
        return self._slice(index) if isinstance(index, slice) else self._made()[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._made())

    def __eq__(self, other: object) -> bool:
        """Return whether the other is a sequence of equal items."""
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # like a list

    def has_only(self, *names: str) -> bool:
        """Return whether no field has another value than its default, except these."""
        return self.columns.keys() <= set(names)

    def has(self, name: str) -> bool:
        """Return whether the structs have a field, and any has another value than its default."""
        return name in self.columns

    def cells(self, name: str) -> Sequence[Any]:
        """Return the values of a member: its column as a list, or its default for each."""
        found = self.columns.get(name)
        return [defaults_of(self.kind)[name]] * len(self) if found is None else as_list(found)

    def array(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return the values of a member as an array."""
        found = self.columns.get(name)
        return found if isinstance(found, pa.Array) else pa.array(self.cells(name), kind)

    def _slice(self, part: slice) -> Self:
        return self._with({name: column[part] for name, column in self.columns.items()})

    def _with(self, columns: Mapping[str, Sequence[Any]]) -> Self:
        return type(self)(self.kind, columns)

    def _made(self) -> Sequence[Any]:
        if self._items is None:
            self._items = self._make()
        return self._items

    def _make(self) -> list[Any]:
        members = [*defaults_of(self.kind).items()]
        while members[-1][0] not in self.columns:
            members.pop()
        cells = [self.cells(name) if name in self.columns else repeat(default) for name, default in members]
        return list(map(self.kind, *cells))


class Batch(Columns[Operation]):
    """Operations of one `kind`: Get, Put, Update or Delete. The first column is `key`."""

    __slots__ = ()

    @property
    def keys(self) -> Sequence[Key]:
        """The keys of the operations."""
        return self.cells("key")

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> Self:
        """Return a batch of operations that are all of one kind, at least one."""
        return cls(type(operations[0]), None, operations)

    @classmethod
    def joined(cls, batches: Sequence[Self]) -> Self:
        """Return the operations of several batches of one kind."""
        if len(batches) == 1:
            return batches[0]
        return cls(batches[0].kind, _joined(batches))

    def at(self, positions: Sequence[int]) -> Self:
        """Return the operations at some positions."""
        return self._with({name: cells_at(column, positions) for name, column in self.columns.items()})

    def with_column(self, name: str, column: Sequence[Any]) -> Self:
        """Return the same operations with another value of a member."""
        return self._with({**self.columns, name: column})


class Results(Columns[Outcome]):
    """The outcomes of a batch: `kind` is Record for gets, where an absent record has the value None, or Written.

    `failed` are the errors by position. The cells of the other columns at these positions have no meaning.
    """

    def __init__(
        self, kind: type[Any], columns: Mapping[str, Sequence[Any]], failed: Mapping[int, TableError] | None = None
    ) -> None:
        super().__init__(kind, columns)
        self.failed = failed or {}

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Results | None":
        """Return outcomes in columns, or None if they have different kinds, or are those of partitions."""
        if isinstance(outcomes, Results):
            return outcomes
        kinds, failed = set(map(type, outcomes)), dict[int, TableError]()
        if not kinds <= {Record, Written, type(None)}:
            failed = {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, TableError)}
            kinds -= {type(error) for error in failed.values()}
        kind: Any = Written if kinds == {Written} else Record if kinds <= {Record, type(None)} else None
        others = outcomes if failed or kind is Written else ()  # Records have no partitions.
        if kind is None or any(getattr(one, "partitions", None) is not None for one in others):
            return None
        if failed or kinds != {kind}:
            absent = kind(*[None for default in defaults_of(kind).values() if default is msgspec.NODEFAULT])
            outcomes = [outcome if type(outcome) is kind else absent for outcome in outcomes]
        return cls(kind, _divided(kind, outcomes), failed)

    @classmethod
    def joined(cls, results: Sequence["Results"]) -> "Results":
        """Return the outcomes of successive batches of one kind."""
        if len(results) == 1:
            return results[0]
        failed, start = dict[int, TableError](), 0
        for part in results:
            failed.update({start + at: error for at, error in part.failed.items()})
            start += len(part)
        return cls(results[0].kind, _joined(results), failed)

    @property
    def value_bytes(self) -> int:
        """The size of all values."""
        values = self.columns.get("value", ())
        if isinstance(values, pa.Array):
            return len(joined_cells(values))
        return sum(map(len, filter(None, values)))

    @property
    def absent(self) -> list[int]:
        """The positions of absent records."""
        values = self.columns["value"]
        if isinstance(values, pa.Array):
            found = pc.indices_nonzero(values.is_null()).to_pylist() if values.null_count else []
        else:
            found = [at for at, value in enumerate(values) if value is None] if None in values else []
        return [at for at in found if at not in self.failed] if self.failed else found

    def with_errors(self, errors: Mapping[int, TableError]) -> "Results":
        """Return the outcomes with errors inserted, by their positions in the result."""
        positions = sorted(errors)
        columns = {name: _with_gaps(self.cells(name), positions) for name in self.columns}
        failed = dict(errors)
        if self.failed:
            others = [at for at in range(len(self) + len(errors)) if at not in errors]
            failed.update({others[at]: error for at, error in self.failed.items()})
        return Results(self.kind, columns, failed)

    def _slice(self, part: slice) -> Self:
        found = super()._slice(part)
        start, stop, _ = part.indices(len(self))
        found.failed = {at - start: error for at, error in self.failed.items() if start <= at < stop}
        return found

    def _make(self) -> list[Outcome]:
        outcomes: list[Outcome] = super()._make()
        if self.kind is Record:
            outcomes = [None if isinstance(one, Record) and one.value is None else one for one in outcomes]
        for at, error in self.failed.items():
            outcomes[at] = error
        return outcomes


def _with_gaps(cells: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    """Return cells with None inserted, by the positions of the gaps in the result."""
    filled, start = list[Any](), 0
    for count, position in enumerate(positions):
        filled += [*cells[start : position - count], None]
        start = position - count
    return [*filled, *cells[start:]]


def has_only(item: Operation, *names: str) -> bool:
    """Return whether no field of a struct has another value than its default, except these."""
    return _divided(type(item), [item]).keys() <= set(names)


def as_list(column: Sequence[Any]) -> Sequence[Any]:
    """Return the cells of a column as a list."""
    return column.to_pylist() if isinstance(column, pa.Array) else column


def cells_at(column: Sequence[Any], positions: Sequence[int]) -> Sequence[Any]:
    """Return the cells of a column at some positions."""
    if isinstance(column, pa.Array):
        return cast("Sequence[Any]", column.take(pa.array(positions, pa.int64())))
    return [column[at] for at in positions]


def shared(column: Sequence[Cell]) -> Sequence[Cell]:
    """Return a column, or only its first cell if all are equal."""
    return column[:1] if column.count(column[0]) == len(column) else column


ARROW_RECORDS_MIN = 100
"""Arrays are made of at least so many records. Fewer are handled one by one, which takes less time."""


def etag_column(digits: str, records: pa.Array) -> pa.Array:
    """Return an array of the etags in `digits`, one of equal length per record, and null for a record that is null."""
    count = len(records)
    ends = _ends(len(digits) // count, 1 << count.bit_length())
    return pa.Array.from_buffers(pa.utf8(), count, [records.buffers()[0], ends, pa.py_buffer(digits.encode())])


@cache
def _ends(length: int, count: int) -> pa.Buffer:
    """Return where so many texts of one length end, one after another."""
    return pa.array(range(0, length * (count + 1), length), pa.int32()).buffers()[1]


def joined_cells(column: pa.Array) -> memoryview:
    """Return the cells of an array of bytes, one after another."""
    _, ends, text = column.buffers()
    ends_at = memoryview(ends).cast("i")[column.offset :]
    return memoryview(text or b"")[ends_at[0] : ends_at[len(column)]]


def apply_by_kind(operations: Sequence[Operation], apply: Callable[[Batch], Applying]) -> Applying:
    """Apply the operations of each kind together, the kinds concurrently. Keep the order of outcomes."""
    if isinstance(operations, Batch):
        return apply(operations)
    if len(operations) == 1 or len(set(map(type, operations))) == 1:
        return apply(Batch.of(operations))
    return apply_in_groups(operations, list(map(type, operations)), lambda _, of_kind: apply(Batch.of(of_kind)))


def apply_in_groups(
    operations: Sequence[Operation], groups: Sequence[Group], apply: Callable[[Group, Any], Applying]
) -> Applying:
    """Apply the operations of each group together, the groups concurrently. Keep the order of outcomes.

    `groups` are the groups of the operations. `apply` gets a group, and its operations: a batch if all are.
    """
    positions: dict[Group, list[int]] = {}
    for position, group in enumerate(groups):
        positions.setdefault(group, []).append(position)
    if len(positions) == 1:
        return apply(groups[0], operations)
    parts = [apply(group, at_positions(operations, of_group)) for group, of_group in positions.items()]
    return _gathered(positions.values(), parts)


async def _gathered(positions: Collection[Sequence[int]], parts: Sequence[Applying]) -> Sequence[Outcome]:
    outcomes: list[Outcome] = [None] * sum(map(len, positions))
    for of_part, part in zip(positions, await gather_bounded(parts, len(parts)), strict=True):
        for position, outcome in zip(of_part, part, strict=True):
            outcomes[position] = outcome
    return outcomes


def joined_outcomes(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the outcomes of successive parts of a batch, in columns if all parts have them."""
    if len(parts) == 1:
        return parts[0]
    results = [part for part in parts if isinstance(part, Results)]
    if len(results) == len(parts) and results:
        return Results.joined(results)
    return list(chain.from_iterable(parts))


@cache
def defaults_of(kind: Any) -> dict[str, Any]:
    """Return the defaults of the fields by their names, NODEFAULT for a field without one."""
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


def _divided(kind: Any, items: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return the columns of structs of a kind, without those that have only defaults."""
    fields, defaults = _fields_of(kind)
    columns = zip(*map(fields, items), strict=True) if items else repeat(())
    return {
        name: [*column]
        for (name, default), column in zip(defaults, columns, strict=False)
        if default is msgspec.NODEFAULT or column.count(default) < len(column)
    }


@cache
def _fields_of(kind: Any) -> tuple[Callable[[Any], tuple[Any, ...]], Sequence[tuple[str, Any]]]:
    return attrgetter(*defaults_of(kind)), [*defaults_of(kind).items()]


def _joined(parts: Sequence[Columns[Any]]) -> dict[str, Sequence[Any]]:
    """Return the columns of several parts of one kind, with the defaults where a part lacks a column.

    A column is an array if it is one in any part.
    """
    names = set().union(*(part.columns for part in parts))
    joined = [name for name in defaults_of(parts[0].kind) if name in names]
    columns: dict[str, Sequence[Any]] = {}
    for name in joined:
        given = [part.columns.get(name) for part in parts]
        kind = next((cells.type for cells in given if isinstance(cells, pa.Array)), None)
        if kind is None:
            columns[name] = list(chain.from_iterable(part.cells(name) for part in parts))
        else:
            columns[name] = pa.concat_arrays([part.array(name, kind) for part in parts])
    return columns


# The kinds and successes of a call. `Table` divides batches, so that a call only reads or only writes.


Direction = Literal["read", "write"]


def direction(operations: Sequence[Operation]) -> Direction:
    """Return whether a call reads or writes. It has at least one operation."""
    kind = operations.kind if isinstance(operations, Batch) else type(operations[0])
    return "read" if kind is Get else "write"


def applied_if_unanswered(operations: Sequence[Operation]) -> Applied:
    """Return whether the operations of a call that was sent but got no response may have been applied."""
    return "no" if direction(operations) == "read" else "unknown"


def count_reads(operations: Sequence[Operation]) -> int:
    """Return the number of reads."""
    if isinstance(operations, Batch):
        return len(operations) if operations.kind is Get else 0
    return list(map(type, operations)).count(Get)


def at_positions(operations: Sequence[Operation], positions: Sequence[int]) -> Sequence[Operation]:
    """Return the operations at some positions, in columns if all operations are."""
    if isinstance(operations, Batch):
        return operations.at(positions)
    return [operations[position] for position in positions]


_SUCCESSES = frozenset({Record, Written, type(None)})


def all_succeeded(outcomes: Sequence[Outcome]) -> bool:
    """Return whether no outcome is an error."""
    return not outcomes.failed if isinstance(outcomes, Results) else _SUCCESSES.issuperset(map(type, outcomes))
