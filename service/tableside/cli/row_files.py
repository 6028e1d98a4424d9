"""The rows of CSV, JSON lines and Parquet files, in parts of a limited size."""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer

from .record_rows import FACTS

ROWS_PER_PART = 1_000
CSV_BLOCK_BYTES = 16 * 2**20

UNREADABLE = (pa.ArrowException, csv.Error, UnicodeDecodeError, OSError)
"""The exceptions that reading a damaged file raises."""


class Part(NamedTuple):
    """Rows of a file in order, and the fraction of the file that has been read, from 0 to 1.

    A row is None if a line is not a JSON object.
    """

    rows: list[dict[str, Any] | None]
    fraction: float


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
        fraction = 0.0
        for batch in reader:
            yield from _batch_parts(batch, fraction, _fraction(source))
            fraction = _fraction(source)


def _check_columns(names: Sequence[str], kinds: Mapping[str, str]) -> None:
    """Raise BadParameter if a key field has no column, or if a column cannot be a member of a value."""
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


def _batch_parts(batch: pa.RecordBatch, before: float, after: float) -> Iterator[Part]:
    """Divide a batch. Its rows take the progress from `before` to `after`."""
    for start in range(0, batch.num_rows, ROWS_PER_PART):
        rows = batch.slice(start, ROWS_PER_PART).to_pylist()
        yield Part(rows, before + (after - before) * (start + len(rows)) / batch.num_rows)


def _json_parts(file: Path) -> Iterator[Part]:
    with file.open("rb") as source:
        lines = (line for line in source if line.strip())
        while rows := [_json_row(line) for line in islice(lines, ROWS_PER_PART)]:
            yield Part(rows, _fraction(source))


def _fraction(source: BinaryIO) -> float:
    """Return the fraction of a file that has been read. A pipe has no size: 0."""
    return source.tell() / os.fstat(source.fileno()).st_size if source.seekable() else 0.0


def _json_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _parquet_parts(file: Path, kinds: Mapping[str, str]) -> Iterator[Part]:
    parquet = pyarrow.parquet.ParquetFile(file)
    _check_columns(parquet.schema_arrow.names, kinds)
    rows_read = 0
    for batch in parquet.iter_batches(ROWS_PER_PART):
        rows_read += batch.num_rows
        yield Part(batch.to_pylist(), rows_read / parquet.metadata.num_rows)
