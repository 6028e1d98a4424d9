"""The rows of CSV, JSON lines and Parquet files, in parts of a limited size."""

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer

ROWS_PER_PART = 1_000
CSV_BLOCK_BYTES = 16 * 2**20

UNREADABLE = (pa.ArrowException, UnicodeDecodeError, OSError)
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
            return _parquet_parts(file)
    raise typer.BadParameter("must end in .csv, .tsv, .jsonl, .ndjson, .json or .parquet", param_hint="FILE")


def _csv_parts(file: Path, kinds: Mapping[str, str]) -> Iterator[Part]:
    # Number-like text becomes a number, except in string keys: 007 must not become 7.
    types = {field: pa.utf8() if kind == "string" else pa.int64() for field, kind in kinds.items()}
    with file.open("rb") as source:
        reader = pyarrow.csv.open_csv(
            source,
            read_options=pyarrow.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t" if file.suffix.lower() == ".tsv" else ","),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        fraction = 0.0
        for batch in reader:
            yield from _batch_parts(batch, fraction, _fraction(source))
            fraction = _fraction(source)


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
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None


def _parquet_parts(file: Path) -> Iterator[Part]:
    parquet = pyarrow.parquet.ParquetFile(file)
    rows_read = 0
    for batch in parquet.iter_batches(ROWS_PER_PART):
        rows_read += batch.num_rows
        yield Part(batch.to_pylist(), rows_read / parquet.metadata.num_rows)
