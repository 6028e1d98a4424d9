"""Decodes operations of one kind from the columns of their members, which JSON and Arrow have in common.

A row whose members are certainly valid is decoded with its column. Any other row is decoded alone, by the rules of
`operation_members`, which also find its error.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set as AbstractSet
from itertools import chain
from typing import Any

import msgspec
import orjson

from ...core import Batch, Changes, InvalidOperation, Operation, TableError, TableSpec, updates, values
from ...core.batch import as_list, defaults_of
from ...core.operations import Key
from . import operation_members
from .members import KINDS, MEMBERS, Member, conflict
from .operation_members import Members
from .projections import Fields, fields_of

_FIELDS = {"update": "changes"} | {member.name: member.field for member in MEMBERS if member.field}
"""The fields of operations that have another name than the member."""

_OPTIONS = {member.name: member for member in MEMBERS}

_KNOWN = frozenset({"key", "value", "update", "default", "fields", *_OPTIONS})

_TEXTS = frozenset({bytes, str})

_NEEDED = {"put": "value", "update": "update"}
"""The member that an operation must have besides the key."""


class DecodedBatch(msgspec.Struct, frozen=True):
    """The valid operations of a batch or of some of its rows, and the errors of the others by position.

    `fields` are the requested members of values at each position, None if all operations request whole values.
    `columns` are the names of the columns of a batch in Arrow.
    """

    operations: Sequence[Operation]
    errors: dict[int, TableError]
    fields: list[Fields] | None = None
    columns: Collection[str] = ()

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.operations) + len(self.errors)


def decode_by_kind(
    ops: Sequence[Any], errors: dict[int, TableError], decode: Callable[[str, Sequence[int]], DecodedBatch]
) -> DecodedBatch:
    """Decode rows with these members `op`: `decode` gets a kind, and the positions of its rows.

    `errors` are those of invalid rows.
    """
    if not errors and ops[:1] and ops[0] in [*KINDS] and ops.count(ops[0]) == len(ops):
        return decode(ops[0], range(len(ops)))
    positions: dict[str, list[int]] = {}
    for at, op in enumerate(ops):
        if at not in errors and isinstance(op, str) and op in KINDS:
            positions.setdefault(op, []).append(at)
        else:
            errors.setdefault(at, InvalidOperation(f"op must be one of {', '.join(KINDS)}"))
    operations = dict[int, Operation]()
    fields: list[Fields] = [None] * len(ops)
    for op, of_kind in positions.items():
        decoded = decode(op, of_kind)
        errors |= {of_kind[at]: error for at, error in decoded.errors.items()}
        operations |= zip([at for at in of_kind if at not in errors], decoded.operations, strict=True)
        for at, only in zip(of_kind, decoded.fields or (), strict=False):
            fields[at] = only
    if len(positions) == 1:  # They stay in columns.
        return DecodedBatch(decoded.operations, errors, fields)
    return DecodedBatch([operations[at] for at in sorted(operations)], errors, fields)


class OperationColumns:
    """Decodes the rows of one batch. `texts`: the documents in the cells are JSON texts, as in Arrow."""

    def __init__(self, spec: TableSpec, *, texts: bool) -> None:
        self._spec = spec
        self._texts = texts
        self._doubtful: set[int] = set()

    def known(self, op: str) -> AbstractSet[str]:
        """Return the names of the members that are decoded in columns. A row with another one is doubtful."""
        return operation_members.NAMES[op] & _KNOWN

    def decode(
        self, op: str, members: Mapping[str, Any], row: Callable[[int], Members], doubtful: Iterable[int]
    ) -> DecodedBatch:
        """Decode rows with the same operation from the cells of known members. A cell is None if the row lacks it.

        The keys may be an array that `checked_strings` has returned.
        The rows that are `doubtful` are decoded alone: `row` returns all members of a row, or raises a TableError.
        """
        count, kind = len(members["key"]), KINDS[op]
        self._doubtful = set(doubtful if _NEEDED.get(op, "key") in members else range(count))
        keys, schema = members["key"], self._spec.key
        columns: dict[str, Any] = {"key": schema.checked_all(keys) or self._each(schema.from_json, keys)}
        for name, cells in members.items():
            if name != "key":
                columns[_FIELDS.get(name, name)] = self._column(name, cells, columns["key"])
        if conflict(op, dict.fromkeys(columns, True)):  # Some rows may have both members.
            self._doubtful.update(range(count))
        fields: list[Fields] | None = columns.pop("fields", None)
        defaults = defaults_of(kind)
        given = {
            name: column
            for name, column in columns.items()
            if name in defaults and (defaults[name] is msgspec.NODEFAULT or column.count(defaults[name]) < count)
        }
        batch, operations, errors = Batch(kind, given), dict[int, Operation](), dict[int, TableError]()
        for at in sorted(self._doubtful):
            try:
                members = row(at)
                only = fields_of(members.get("fields"))
                operations[at] = operation_members.operation(self._spec, op, members)
            except TableError as error:
                errors[at] = error.with_traceback(None)  # The traceback would keep the whole request alive.
            else:
                if fields is not None:
                    fields[at] = only
        if operations:
            batch = Batch.of([operations.get(at, operation) for at, operation in enumerate(batch)])
        if errors:
            batch = batch.at([at for at in range(len(batch)) if at not in errors])
        return DecodedBatch(batch, errors, fields)

    # Each of these returns the column of a field, and adds the rows to `_doubtful` that it cannot decode.

    def _column(self, name: str, cells: list[Any], keys: Sequence[Key]) -> Sequence[Any]:
        match name:
            case "value":
                return self._values(cells, keys)
            case "update":
                return self._updates(cells)
            case "default":
                return self._distinct(self._default, self._as_texts(cells), _TEXTS)
            case "fields":
                return self._distinct(lambda text: fields_of(orjson.loads(text)), self._dumped(cells), _TEXTS)
        return self._options(_OPTIONS[name], cells)

    def _each(self, decode: Callable[[Any], Any], cells: Sequence[Any], invalid: Any = None) -> list[Any]:
        """Decode each cell. Those for which the function raises a TableError are `invalid`."""
        column = []
        for at, cell in enumerate(cells):
            try:
                column.append(decode(cell))
            except TableError:
                self._doubtful.add(at)
                column.append(invalid)
        return column

    def _distinct(
        self, decode: Callable[[Any], Any], cells: Sequence[Any], types: Collection[type], absent: Any = None
    ) -> list[Any]:
        """Decode each distinct cell of these types once. None becomes `absent`."""
        types = {*types, type(None)}
        if not set(map(type, cells)) <= types:
            self._doubtful.update(at for at, cell in enumerate(cells) if type(cell) not in types)
            cells = [cell if type(cell) in types else None for cell in cells]
        decoded: dict[Any, Any] = {None: absent}
        invalid = set()
        for cell in set(cells) - {None}:
            try:
                decoded[cell] = decode(cell)
            except TableError:
                decoded[cell] = absent
                invalid.add(cell)
        if invalid:
            self._doubtful.update(at for at, cell in enumerate(cells) if cell in invalid)
        return [decoded[cell] for cell in cells]

    def _values(self, cells: list[Any], keys: Sequence[Key]) -> Sequence[bytes]:
        """Decode values. A value that repeats members of its key loses them."""
        if None in cells:
            self._doubtful.update(at for at, cell in enumerate(cells) if cell is None)
        if self._texts:
            self._doubt_long(cells)
        cells = self._blanked(cells)
        documents = cells
        if self._texts:
            documents, rejected = values.parse_all(cells)
            self._doubtful.update(rejected)
            cells = self._blanked(cells)
        if names := self._spec.key.names:
            keys = as_list(keys)
            for at, document in enumerate(documents):
                if type(document) is dict and not names.isdisjoint(document):
                    try:
                        documents[at] = self._spec.key.without_key({**document}, keys[at])
                    except TableError:
                        self._doubtful.add(at)
        encoded = values.encode_all(documents, cells if self._texts else ())
        texts = encoded if encoded is not None else self._each(values.encode, documents, b"")
        self._doubt_long(texts)
        return texts

    def _doubt_long(self, texts: Sequence[bytes | str | None]) -> None:
        """Add the rows with a text that is too long for a value to `_doubtful`."""
        size_max = self._spec.value_bytes_max
        if max(map(len, filter(None, texts)), default=0) > size_max:
            self._doubtful.update(at for at, text in enumerate(texts) if len(text or "") > size_max)

    def _blanked(self, cells: list[Any]) -> list[Any]:
        """Return documents, with an empty object in each doubtful row."""
        empty: Any = b"{}" if self._texts else {}
        return [empty if at in self._doubtful else cell for at, cell in enumerate(cells)] if self._doubtful else cells

    def _updates(self, cells: list[Any]) -> list[Changes | None]:
        column = self._distinct(lambda text: updates.parse(values.parse(text)), self._as_texts(cells), _TEXTS)
        self._doubtful.update(at for at, changes in enumerate(column) if changes is None)
        return column

    def _default(self, text: bytes | str) -> bytes:
        self._spec.check_value(text)
        document = values.parse(text)
        if isinstance(document, dict) and not self._spec.key.names.isdisjoint(document):
            raise InvalidOperation("the default repeats its key, which each row has to check")
        default = values.encode(document)
        self._spec.check_value(default)
        return default

    def _as_texts(self, cells: list[Any]) -> list[Any]:
        """Return documents as texts, which can be compared."""
        return cells if self._texts else self._dumped(cells)

    def _dumped(self, cells: list[Any]) -> list[bytes | None]:
        try:
            return [None if cell is None else orjson.dumps(cell) for cell in cells]
        except TypeError:  # an integer beyond 64 bits, for example
            self._doubtful.update(range(len(cells)))
            return [None] * len(cells)

    def _options(self, member: Member, cells: list[Any]) -> list[Any]:
        if not member.cells:
            return self._distinct(lambda text: member.parse(orjson.loads(text)), self._dumped(cells), _TEXTS)
        return self._distinct(member.parse, cells, member.cells, False if bool in member.cells else None)


def joined_batch(parts: Sequence[DecodedBatch], columns: Collection[str] = ()) -> DecodedBatch:
    """Join successive parts of a batch. Operations of one kind stay in columns. `columns` are as in `DecodedBatch`."""
    errors, count = dict[int, TableError](), 0
    for part in parts:
        errors |= {count + at: error for at, error in part.errors.items()}
        count += part.count
    given = parts if any(part.fields for part in parts) else ()
    fields = [only for part in given for only in part.fields or [None] * part.count]
    projects = fields.count(None) < len(fields)
    found = [part.operations for part in parts if len(part.operations)]
    batches = [operations for operations in found if isinstance(operations, Batch)]
    of_one_kind = len(batches) == len(found) and len({batch.kind for batch in batches}) == 1
    operations = Batch.joined(batches) if of_one_kind else list(chain.from_iterable(found))
    return DecodedBatch(operations, errors, fields if projects else None, columns)
