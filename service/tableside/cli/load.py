"""`tableside load`: writes the rows of a file to a table."""

import decimal
from collections.abc import Iterator
from datetime import date, time
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer
from rich.console import Console
from rich.progress import Progress, wrap_file

from tableside_client.client import TableClient

from .client_options import client_command
from .records import TableArgument, key_types

BATCH_ROWS = 2000
CSV_BLOCK_BYTES = 16 * 2**20
ERRORS_SHOWN_MAX = 5
DECIMAL_DIGITS_MAX = 15

Row = dict[str, Any]


@client_command
def load(
    client: TableClient,
    table: TableArgument,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV, JSON lines or Parquet.")],
    key: Annotated[list[str], typer.Option(help="The field with the key. Repeat it for each part of a composite key.")],
) -> None:
    """Write every row of a file as a record of a table."""
    kinds = key_types(client, table)
    if len(kinds) != len(key):
        raise typer.BadParameter(f"keys of this table have {len(kinds)} parts", param_hint="--key")
    loader = _Loader(client, table, key, kinds)
    try:
        loader.load(_rows(file, dict(zip(key, kinds, strict=True))))
    except (pa.ArrowException, orjson.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        loader.fail(f"{file.name} cannot be read any further: {str(error).partition(chr(10))[0]}")
    typer.echo(f"{loader.stored} records stored in {table}, {loader.failed} failed")
    if loader.failed:
        raise typer.Exit(1)


class _Loader:
    """Sends rows in batches, and counts the stored and failed rows."""

    def __init__(self, client: TableClient, table: str, key: list[str], kinds: list[str]) -> None:
        self._client, self._table, self._key, self._kinds = client, table, key, kinds
        self._row = 0
        self.stored = 0
        self.failed = 0

    def load(self, rows: Iterator[Row]) -> None:
        while chunk := list(islice(rows, BATCH_ROWS)):
            self._send([self._record(row) for row in chunk])

    def fail(self, message: str) -> None:
        self.failed += 1
        if self.failed <= ERRORS_SHOWN_MAX:
            typer.echo(f"tableside: {message}", err=True)

    def _record(self, row: Row) -> tuple[int, Any, bytes | None]:
        """Return the row's number, its key and its encoded value. The value is None if the row is invalid."""
        self._row += 1
        try:
            parts = [row.pop(field) for field in self._key]
            value = orjson.dumps(_to_json(row))
        except KeyError as error:
            self.fail(f"row {self._row} has no field {error.args[0]!r}")
            return self._row, None, None
        except (TypeError, ValueError) as error:
            self.fail(f"row {self._row}: {error}")
            return self._row, None, None
        return self._row, parts[0] if len(parts) == 1 else parts, value

    def _send(self, records: list[tuple[int, Any, bytes | None]]) -> None:
        valid = [record for record in records if record[2] is not None]
        try:
            keys = self._keys([record[1] for record in valid])
        except (pa.ArrowException, OverflowError):
            self.fail(f"rows {records[0][0]} to {records[-1][0]}: a key does not have the type of the table's keys")
            self.failed += len(valid) - 1
            return
        batch = pa.table({"key": keys, "value": pa.array([record[2] for record in valid], pa.binary())})
        results = self._client.batch(self._table, batch, op="put").select(["status", "code", "detail"]).to_pylist()
        for record, result in zip(valid, results, strict=True):
            if result["status"] < 300:
                self.stored += 1
            else:
                self.fail(f"row {record[0]}: {result['code']}: {result['detail']}")

    def _keys(self, keys: list[Any]) -> pa.Array:
        types = [pa.utf8() if kind == "string" else pa.int64() for kind in self._kinds]
        if len(types) == 1:
            return pa.array(keys, types[0])
        return pa.StructArray.from_arrays(
            [pa.array([key[index] for key in keys], kind) for index, kind in enumerate(types)], self._key
        )


def _rows(file: Path, kinds: dict[str, str]) -> Iterator[Row]:
    match file.suffix.lower():
        case ".csv" | ".tsv":
            return _csv_rows(file, kinds)
        case ".jsonl" | ".ndjson" | ".json":
            return _json_rows(file)
        case ".parquet":
            return _parquet_rows(file)
    raise typer.BadParameter("must end in .csv, .tsv, .jsonl, .ndjson, .json or .parquet", param_hint="FILE")


def _csv_rows(file: Path, kinds: dict[str, str]) -> Iterator[Row]:
    # Number-like text becomes a number, except in string keys: 007 must not become 7.
    types = {field: pa.utf8() if kind == "string" else pa.int64() for field, kind in kinds.items()}
    with file.open("rb") as raw, wrap_file(raw, file.stat().st_size, **_progress_options(file)) as source:
        reader = pyarrow.csv.open_csv(
            source,
            read_options=pyarrow.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t" if file.suffix.lower() == ".tsv" else ","),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        for batch in reader:
            yield from batch.to_pylist()


def _json_rows(file: Path) -> Iterator[Row]:
    with file.open("rb") as raw, wrap_file(raw, file.stat().st_size, **_progress_options(file)) as source:
        for line in source:
            if line.strip():
                row = orjson.loads(line)
                yield row if isinstance(row, dict) else {}


def _parquet_rows(file: Path) -> Iterator[Row]:
    parquet = pyarrow.parquet.ParquetFile(file)
    options = _progress_options(file)
    with Progress(console=options["console"], disable=options["disable"]) as progress:
        task = progress.add_task(options["description"], total=parquet.metadata.num_rows)
        for batch in parquet.iter_batches(BATCH_ROWS):
            yield from batch.to_pylist()
            progress.advance(task, batch.num_rows)


def _progress_options(file: Path) -> dict[str, Any]:
    console = Console(stderr=True)
    return {"console": console, "disable": not console.is_terminal, "description": file.name}


def _to_json(value: Any) -> Any:
    """Convert a value to JSON types: times to ISO 8601, and decimals to numbers if a double is exact enough.

    Raise ValueError for decimals with too many digits, numbers that are not finite, and bytes.
    """
    match value:
        case dict():
            return {name: _to_json(member) for name, member in value.items()}
        case list():
            return [_to_json(element) for element in value]
        case date() | time():
            return value.isoformat()
        case decimal.Decimal():
            if len(value.as_tuple().digits) > DECIMAL_DIGITS_MAX:
                raise ValueError(f"a decimal has more than {DECIMAL_DIGITS_MAX} digits")
            return float(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("a number is not finite")
        case bytes():
            raise ValueError("JSON cannot represent bytes")
    return value
