"""Turn filters on key columns into exactly the records that match, as Spark drops these. Requires PySpark 4.1."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In, StringStartsWith
from pyspark.sql.types import IntegralType, StringType, StructType

from tableside_client.table_schema import PARTITION_COLUMN, TableSchema
from tableside_spark.datasource.reader import Part, Selection, TableReader

KEYS_MAX = 100_000
"""The maximum number of lookups. Filters that select more are left to Spark, after a scan."""
LEADING_MAX = 100
"""The maximum number of scans with a first part of the key."""

KEY_BYTES_MAX = 1024


@dataclass(slots=True)
class _ColumnFilters:
    kind: type
    values: list[Any] | None = None
    prefixes: list[str] = field(default_factory=list)
    value_filters: list[Filter] = field(default_factory=list)
    prefix_filters: list[Filter] = field(default_factory=list)

    def add(self, condition: Filter) -> None:
        match condition:
            case EqualTo(value=value) | EqualNullSafe(value=value) if type(value) is self.kind:
                self._intersect([value])
                self.value_filters.append(condition)
            case In(value=values) if all(value is None or type(value) is self.kind for value in values):
                self._intersect([value for value in values if value is not None])
                self.value_filters.append(condition)
            case StringStartsWith(value=str(prefix)) if self.kind is str and prefix:
                self.prefixes.append(prefix)
                self.prefix_filters.append(condition)

    def _intersect(self, values: Sequence[Any]) -> None:
        known = dict.fromkeys(values)
        self.values = list(known) if self.values is None else [value for value in self.values if value in known]

    @property
    def prefix(self) -> str | None:
        """The longest prefix, if it implies the others."""
        longest = max(self.prefixes, key=len, default=None)
        return longest if longest is not None and all(map(longest.startswith, self.prefixes)) else None


def select(
    filters: Iterable[Filter], keys: Sequence[str], schema: StructType, table_schema: TableSchema, given: Selection
) -> tuple[Selection, list[Filter]]:
    """Return the selection, and the filters that it uses.

    `keys` are in the order of the key. If the selection of the options, `given`, has a prefix or a first part, filters
    on the key are not used.
    """
    columns = _columns(keys, schema, table_schema)
    for condition in filters:
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        if len(path) == 1 and path[0] in columns:
            columns[path[0]].add(condition)
    selection, used = _select_partitions(columns, given, table_schema.partitions)
    if given.prefix is not None or given.leading is not None:
        return selection, used
    parts = [columns.get(name) for name in keys]
    copies = table_schema.partitions if selection.partitions is None else len(selection.partitions)
    narrowed, more = _select_keys(parts, selection, copies or 1)
    return narrowed, used + more


def _columns(keys: Sequence[str], schema: StructType, table_schema: TableSchema) -> dict[str, _ColumnFilters]:
    """Return the columns whose filters can be used: the ones that compare their values as the table does."""
    kinds = dict(zip(keys, table_schema.key_types, strict=True))
    if table_schema.partitions:
        kinds.setdefault(PARTITION_COLUMN, "integer")
    columns: dict[str, _ColumnFilters] = {}
    for column in schema:
        kind = kinds.get(column.name)
        if kind == "integer" and isinstance(column.dataType, IntegralType):
            columns[column.name] = _ColumnFilters(int)
        elif kind == "string" and column.dataType == StringType():  # without a collation
            columns[column.name] = _ColumnFilters(str)
    return columns


def _select_partitions(
    columns: dict[str, _ColumnFilters], given: Selection, count: int | None
) -> tuple[Selection, list[Filter]]:
    wanted = columns.get(PARTITION_COLUMN) if count else None
    if wanted is None or wanted.values is None:
        return given, []
    allowed = range(count or 0) if given.partitions is None else given.partitions
    indexes = tuple(index for index in allowed if index in wanted.values)
    # A scan reads at least one partition, so no partition is selected as no key.
    selection = replace(given, partitions=indexes) if indexes else replace(given, keys=())
    return selection, wanted.value_filters


def _select_keys(
    parts: Sequence[_ColumnFilters | None], selection: Selection, copies: int
) -> tuple[Selection, list[Filter]]:
    if selection.keys is not None:
        return selection, []
    known = [part for part in parts if part is not None and part.values is not None]
    values = [list(filter(_is_possible, part.values or [])) for part in known]
    if not all(values):
        return replace(selection, keys=()), [used for part in known for used in part.value_filters]
    if len(known) == len(parts) and copies * math.prod(map(len, values)) <= KEYS_MAX:
        return replace(selection, keys=tuple(product(*values))), [used for part in known for used in part.value_filters]
    first, *others = parts
    if first is None:
        return selection, []
    if others and first.values is not None and len(values[0]) <= LEADING_MAX:
        second = others[0]
        prefix = None if second is None else second.prefix
        used = [] if prefix is None or second is None else second.prefix_filters
        return replace(selection, leading=tuple(values[0]), prefix=prefix), first.value_filters + used
    return replace(selection, prefix=first.prefix), first.prefix_filters if first.prefix else []


def _is_possible(part: Part) -> bool:
    """Return whether a key can have this part. The service rejects scans of other first parts."""
    return not isinstance(part, str) or ("\0" not in part and 0 < len(part.encode()) <= KEY_BYTES_MAX)


class PushdownReader(TableReader):
    """Reads only the records that filters on the key select."""

    def __init__(self, schema: StructType, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._schema = schema

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the filters on the key, and return the others."""
        target = self._target
        self._selection, used = select(filters, target.keys, self._schema, target.table_schema, self._selection)
        return [condition for condition in filters if not any(condition is one for one in used)]
