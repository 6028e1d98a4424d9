"""Rows in files: reads CSV, JSON lines and Parquet in parts of a limited size, and writes CSV and Parquet."""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer

from tableside_client.json_batch import chunks

from .record_rows import FACTS, Row, json_text, parse_json

ROWS_PER_PART = 1_000
ROWS_PER_GROUP = 10_000
CSV_BLOCK_BYTES = 16 * 2**20

UNREADABLE = (pa.ArrowException, csv.Error, UnicodeDecodeError, OSError)
"""The exceptions that reading a damaged file raises."""


Part = tuple[Sequence[Row | None], float]
"""Rows of a file, None for a line that is no JSON object, and the fraction that has been read, from 0 to 1."""


def read_parts(file: Path, kinds: Mapping[str, str]) -> Iterator[Part]:
    """Read a file by its suffix. `kinds` are the types of key fields. Raises one of `UNREADABLE`."""
    match file.suffix.lower():
        case ".csv" | ".tsv":
            return _csv_parts(file, kinds)
        case ".jsonl" | ".ndjson" | ".json":
            return _json_parts(file)
        case ".parquet":
            return _parquet_parts(file, kinds)
    raise typer.BadParameter("must end in .csv, .tsv, .jsonl, .ndjson, .json or .parquet", param_hint="FILE")


def _csv_parts(file: Path, kinds: Mapping[str, str]) -> Iterator[Part]:
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    with file.open("rb") as source:
        lines = (line.decode("utf-8-sig") for line in source)
        header = next((names for names in csv.reader(lines, delimiter=delimiter) if names), [])
        _check_columns(header, kinds)
        if not source.peek(1):
            return
        # Number-like text becomes a number, except in string keys, where 007 must not become 7, and in a scan's file.
        types = dict.fromkeys(header, pa.utf8()) if FACTS in header else {}
        types |= {field: pa.utf8() if kind == "string" else pa.int64() for field, kind in kinds.items()}
        reader = pyarrow.csv.open_csv(
            source,
            read_options=pyarrow.csv.ReadOptions(block_size=CSV_BLOCK_BYTES, column_names=header),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        before = 0.0
        for batch in reader:
            after = _fraction(source)
            for start in range(0, batch.num_rows, ROWS_PER_PART):
                rows = batch.slice(start, ROWS_PER_PART).to_pylist()
                yield rows, before + (after - before) * (start + len(rows)) / batch.num_rows
            before = after


def _check_columns(names: Sequence[str], kinds: Mapping[str, str]) -> None:
    if absent := [field for field in kinds if field not in names]:
        raise typer.BadParameter(
            f"the file has no column {absent[0]!r}: it has {', '.join(names) or 'none'}", param_hint="--key"
        )
    if repeated := [name for name in names if names.count(name) > 1]:
        raise typer.BadParameter(f"two columns have the name {repeated[0]!r}: rename one", param_hint="FILE")
    if "" in names and "" not in kinds:
        raise typer.BadParameter(
            f"column {names.index('') + 1} has no name: name it, or write the file with index=False if it is the "
            "index of a pandas frame",
            param_hint="FILE",
        )


def _json_parts(file: Path) -> Iterator[Part]:
    with file.open("rb") as source:
        for lines in chunks((line for line in source if line.strip()), ROWS_PER_PART):
            yield list(map(_json_row, lines)), _fraction(source)


def _json_row(line: bytes) -> Row | None:
    try:
        row = parse_json(line.decode())
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _fraction(source: BinaryIO) -> float:
    return source.tell() / os.fstat(source.fileno()).st_size if source.seekable() else 0.0  # a pipe has no size


def _parquet_parts(file: Path, kinds: Mapping[str, str]) -> Iterator[Part]:
    parquet = pyarrow.parquet.ParquetFile(file)
    _check_columns(parquet.schema_arrow.names, kinds)
    rows_read = 0
    for batch in parquet.iter_batches(ROWS_PER_PART):
        rows_read += batch.num_rows
        yield batch.to_pylist(), rows_read / parquet.metadata.num_rows


def write_csv(columns: Sequence[str], rows: Iterable[Row], target: IO[str]) -> None:
    """Write a header and the rows: strings unchanged, null and absent members as empty fields, others as JSON."""
    writer = csv.writer(_Lines(target), lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        fields = map(row.get, columns)
        writer.writerow([field if field is None or isinstance(field, str) else json_text(field) for field in fields])


class _Lines:
    """Replaces the ends of lines. The writer quotes a carriage return in a field only if it ends lines with one."""

    def __init__(self, target: IO[str]) -> None:
        self._target = target

    def write(self, line: str) -> None:
        self._target.write(line.removesuffix("\r\n") + "\n")


def write_parquet(columns: Sequence[str], rows: Iterable[Row], target: IO[bytes]) -> None:
    """Write rows, which are read three times. A column is JSON text if its values have no common type in Parquet."""
    types = dict.fromkeys(columns, pa.null())
    for narrowed in (_common_type, _exact_type):
        for chunk in chunks(rows, ROWS_PER_GROUP):
            types |= {
                column: narrowed(kind, _values(chunk, column)) for column, kind in types.items() if kind is not None
            }
    schema = pa.schema([(column, kind or pa.string()) for column, kind in types.items()])
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for chunk in chunks(rows, ROWS_PER_GROUP):
            arrays = [_array(types[column], _values(chunk, column)) for column in columns]
            writer.write_table(pa.table(arrays, schema=schema))


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    return [row.get(column) for row in rows]


def _common_type(kind: pa.DataType, values: list[Any]) -> pa.DataType | None:
    """Return the type of the values found so far, which is `kind`, and of these values, None if there is none."""
    try:
        schemas = [pa.schema([("", each)]) for each in (kind, pa.array(values).type)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _exact_type(kind: pa.DataType, values: list[Any]) -> pa.DataType | None:
    """Return the type if it represents all values exactly, else None: a double does not represent all integers."""
    try:
        array = pa.array(values, kind)
    except pa.ArrowException:
        return None
    is_exact = not pa.types.is_nested(kind) or array.to_pylist() == values
    return kind if is_exact and not _has_empty_struct(kind) else None


def _has_empty_struct(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_has_empty_struct(field.type) for field in kind)
    return pa.types.is_list(kind) and _has_empty_struct(kind.value_type)


def _array(kind: pa.DataType | None, values: list[Any]) -> pa.Array:
    if kind is not None:
        return pa.array(values, kind)
    return pa.array([None if value is None else json_text(value) for value in values], pa.string())
