"""The kinds of frames: pyarrow Tables, and DataFrames of pandas and Polars, and their conversion from and to Arrow."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.key_columns import key_column
from tableside_client.table_schema import TableSchema, wire_keys

KindName: TypeAlias = Literal["arrow", "pandas", "polars"]


class ArrowTables:
    """Converts tables of pyarrow."""

    def names(self, frame: pa.Table) -> list[str]:
        """Return the names of the columns."""
        return list(frame.column_names)

    def columns(self, frame: pa.Table, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns in Arrow. Raises `ValueError` for one that Arrow cannot represent."""
        return {name: _converted(name, frame[name]) for name in names}

    def with_columns(self, frame: pa.Table, added: pa.Table) -> pa.Table:
        """Return the frame, whose columns and rows stay as they are, with columns after its own."""
        for field, column in zip(added.schema, added.columns, strict=True):
            frame = frame.append_column(field, column)
        return frame

    def from_arrow(self, table: pa.Table) -> pa.Table:
        """Return a new frame."""
        return table


class PandasFrames:
    """Converts DataFrames of pandas. NaN, NaT and NA are null."""

    def __init__(self, pandas: Any) -> None:
        self._pandas = pandas

    def names(self, frame: Any) -> list[str]:
        """Return the names of the columns."""
        return list(map(str, frame.columns))

    def columns(self, frame: Any, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns in Arrow."""
        positions = {name: at for at, name in enumerate(self.names(frame))}
        columns = {name: _converted(name, frame.iloc[:, positions[name]]) for name in names}
        for name, column in columns.items():
            if pa.types.is_floating(column.type):  # The types of pandas for nullable numbers can contain NaN.
                columns[name] = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        return columns

    def with_columns(self, frame: Any, added: pa.Table) -> Any:
        """Return the frame with columns after its own."""
        columns = zip(added.column_names, added.columns, strict=True)
        return frame.assign(**{name: self._series(column, frame.index) for name, column in columns})

    def from_arrow(self, table: pa.Table) -> Any:
        """Return a new frame."""
        index = self._pandas.RangeIndex(len(table))
        columns = zip(table.column_names, table.columns, strict=True)
        return self._pandas.DataFrame({name: self._series(column, index) for name, column in columns}, index=index)

    def _series(self, column: pa.ChunkedArray, index: Any) -> Any:
        """Return a column with integers and booleans that can be null, and nested values as Python objects."""
        if pa.types.is_nested(column.type):
            return self._pandas.Series(column.to_pylist(maps_as_pydicts="lossy"), index=index, dtype=object)
        series = column.to_pandas(types_mapper=self._nullable if column.null_count else None)
        return series.set_axis(index)

    def _nullable(self, kind: pa.DataType) -> Any:
        if pa.types.is_boolean(kind):
            return self._pandas.BooleanDtype()
        if pa.types.is_integer(kind):
            return getattr(self._pandas, f"Int{kind.bit_width}Dtype")()
        return None


class PolarsFrames:
    """Converts DataFrames of Polars."""

    def __init__(self, polars: Any) -> None:
        self._polars = polars

    def names(self, frame: Any) -> list[str]:
        """Return the names of the columns."""
        return list(frame.columns)

    def columns(self, frame: Any, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns in Arrow."""
        return ArrowTables().columns(frame.select(list(names)).to_arrow(), names)

    def with_columns(self, frame: Any, added: pa.Table) -> Any:
        """Return the frame with columns after its own."""
        return frame.hstack(self._polars.from_arrow(added).get_columns())

    def from_arrow(self, table: pa.Table) -> Any:
        """Return a new frame."""
        return self._polars.from_arrow(table)


FrameKind: TypeAlias = ArrowTables | PandasFrames | PolarsFrames

_PACKAGES: dict[str, tuple[str, type[Any]]] = {"pandas": ("pandas", PandasFrames), "polars": ("Polars", PolarsFrames)}


def kind_named(name: str) -> FrameKind:
    """Return a kind by its name. Raises `ImportError` if its package is not installed."""
    if name == "arrow":
        return ArrowTables()
    if name not in _PACKAGES:
        raise ValueError(f'kind must be "arrow", "pandas" or "polars", not {name!r}')
    label, kind = _PACKAGES[name]
    try:
        found: FrameKind = kind(import_module(name))
    except ModuleNotFoundError as error:
        raise ImportError(f'kind="{name}" needs {label}: pip install {name}') from error
    return found


def kind_of(frame: Any) -> FrameKind:
    """Return the kind of a frame. Raises `TypeError` for another object, and `ValueError` for a name that repeats."""
    # A program with a frame has imported its package.
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    kind: FrameKind
    if isinstance(frame, pa.Table):
        kind = ArrowTables()
    elif pandas is not None and isinstance(frame, pandas.DataFrame):
        kind = PandasFrames(pandas)
    elif polars is not None and isinstance(frame, polars.DataFrame):
        kind = PolarsFrames(polars)
    elif polars is not None and isinstance(frame, polars.LazyFrame):
        raise TypeError("a LazyFrame has no rows yet: call collect() first")
    else:
        raise TypeError(
            f"a frame must be a pyarrow Table, a pandas DataFrame or a Polars DataFrame, not {type(frame).__name__}"
        )
    require_unique(kind.names(frame))
    return kind


def require_unique(names: Sequence[str]) -> None:
    """Raise `ValueError` for a name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two columns are named {name!r}: rename or drop one first")
        seen.add(name)


def _converted(name: str, column: Any) -> pa.Array:
    try:
        return plain(column if isinstance(column, pa.ChunkedArray) else pa.array(column, from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"column {name} cannot be converted to Arrow: {reason}") from error


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array in the types of `plain_type`. Nanoseconds are cut off."""
    kind = plain_type(column.type)
    if kind != column.type:
        column = column.cast(kind, safe="[ns" not in str(column.type))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries, views, large and fixed sizes, and units of time other than microseconds."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_date64(kind):
        return pa.date32()
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), kind.item_field.with_type(plain_type(kind.item_type)))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    return kind


def check_columns(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise `ValueError` if a frame with these names lacks a wanted column."""
    for name in wanted:
        if name not in names:
            raise ValueError(f"the frame has no column {name!r}; it has {', '.join(names)}")


def key_names(key: str | Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of an argument with key columns. Raises `ValueError` if a frame with these names lacks one."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise ValueError("no key column is named")
    check_columns(names, keys)
    return keys


@dataclass(frozen=True, slots=True)
class FrameKeys:
    """A frame's key columns in the order of the table's key, its fields' names, and whether the types match."""

    columns: dict[str, pa.Array]
    fields: tuple[str, ...]
    is_typed: bool

    @classmethod
    def of_frame(cls, kind: FrameKind, frame: Any, keys: Sequence[str], table_schema: TableSchema) -> Self:
        """Read the key columns of a frame. Raises `ValueError` for a column with a type that is not valid for keys."""
        ordered, fields = wire_keys(table_schema, keys)
        columns = {name: _key_array(name, column) for name, column in kind.columns(frame, ordered).items()}
        types = ["integer" if pa.types.is_integer(column.type) else "string" for column in columns.values()]
        return cls(columns, fields, types == list(table_schema.key_types))

    def take(self, rows: Sequence[int]) -> pa.Array:
        """Return the keys of rows, in the type of the request."""
        return key_column([column.take(pa.array(rows, pa.int64())) for column in self.columns.values()], self.fields)

    def key(self, row: int) -> Any:
        """Return the key of a row: a string or an integer, or a tuple of them for a composite key."""
        parts = [_part(column[row]) for column in self.columns.values()]
        return parts[0] if len(parts) == 1 else tuple(parts)


def _part(value: pa.Scalar) -> Any:
    if not pa.types.is_string(value.type) or not value.is_valid:
        return value.as_py()
    return value.as_buffer().to_pybytes().decode(errors="replace")


def _key_array(name: str, column: pa.Array) -> pa.Array:
    if column.null_count == len(column):  # pandas has such columns as doubles
        return pa.nulls(len(column), pa.string())
    if pa.types.is_integer(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise ValueError(f"key column {name!r} has an integer beyond 64 bits with a sign") from error
    if not pa.types.is_string(column.type):
        raise ValueError(f"key column {name!r} is {column.type}: a key is a string or an integer")
    return column
