"""`tableside load`: the rows of a file become the records of a table."""

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

from .client_options import reaching
from .records import TableArgument, key_types

BATCH_ROWS = 2000
CSV_BLOCK_BYTES = 16 * 2**20
SHOWN_MAX = 5
DECIMAL_DIGITS_MAX = 15

Row = dict[str, Any]


@reaching
def load(
    client: TableClient,
    table: TableArgument,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV, JSON lines or Parquet.")],
    key: Annotated[list[str], typer.Option(help="The field that is the key; once for each part of a composite key.")],
) -> None:
    """Put every row of a file into a table, under the row's key."""
    kinds = key_types(client, table)
    if len(kinds) != len(key):
        raise typer.BadParameter(f"keys of this table have {len(kinds)} parts", param_hint="--key")
    loading = _Loading(client, table, key, kinds)
    try:
        loading.take(_rows(file, dict(zip(key, kinds, strict=True))))
    except (pa.ArrowException, orjson.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        loading.refuse(f"{file.name} cannot be read further: {str(error).partition(chr(10))[0]}")
    typer.echo(f"{loading.stored} records stored in {table}, {loading.failed} failed")
    if loading.failed:
        raise typer.Exit(1)


class _Loading:
    """Sends rows in batches, and counts what became of them."""

    def __init__(self, client: TableClient, table: str, key: list[str], kinds: list[str]) -> None:
        self._client, self._table, self._key, self._kinds = client, table, key, kinds
        self._row = 0
        self.stored = 0
        self.failed = 0

    def take(self, rows: Iterator[Row]) -> None:
        while some := list(islice(rows, BATCH_ROWS)):
            self._send([self._record(row) for row in some])

    def refuse(self, why: str) -> None:
        self.failed += 1
        if self.failed <= SHOWN_MAX:
            typer.echo(f"tableside: {why}", err=True)

    def _record(self, row: Row) -> tuple[int, Any, bytes | None]:
        """Return the row's number, its key, and its value's text; None where it has no legal one."""
        self._row += 1
        try:
            parts = [row.pop(field) for field in self._key]
            value = orjson.dumps(_jsonable(row))
        except KeyError as error:
            self.refuse(f"row {self._row} has no field {error.args[0]!r}")
            return self._row, None, None
        except (TypeError, ValueError) as error:
            self.refuse(f"row {self._row}: {error}")
            return self._row, None, None
        return self._row, parts[0] if len(parts) == 1 else parts, value

    def _send(self, records: list[tuple[int, Any, bytes | None]]) -> None:
        legal = [record for record in records if record[2] is not None]
        try:
            keys = self._keys([record[1] for record in legal])
        except (pa.ArrowException, OverflowError):
            self.refuse(f"rows {records[0][0]} to {records[-1][0]}: a key does not have the type of the table's keys")
            self.failed += len(legal) - 1
            return
        batch = pa.table({"key": keys, "value": pa.array([record[2] for record in legal], pa.binary())})
        answers = self._client.batch(self._table, batch, op="put").select(["status", "code", "detail"]).to_pylist()
        for record, answer in zip(legal, answers, strict=True):
            if answer["status"] < 300:
                self.stored += 1
            else:
                self.refuse(f"row {record[0]}: {answer['code']}: {answer['detail']}")

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
    raise typer.BadParameter("a file ends in .csv, .tsv, .jsonl, .ndjson, .json or .parquet", param_hint="FILE")


def _csv_rows(file: Path, kinds: dict[str, str]) -> Iterator[Row]:
    # What looks like a number is one, save in a key that is a string: 007 must not become 7.
    types = {field: pa.utf8() if kind == "string" else pa.int64() for field, kind in kinds.items()}
    with file.open("rb") as raw, wrap_file(raw, file.stat().st_size, **_bar(file)) as source:
        reader = pyarrow.csv.open_csv(
            source,
            read_options=pyarrow.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t" if file.suffix.lower() == ".tsv" else ","),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        for batch in reader:
            yield from batch.to_pylist()


def _json_rows(file: Path) -> Iterator[Row]:
    with file.open("rb") as raw, wrap_file(raw, file.stat().st_size, **_bar(file)) as source:
        for line in source:
            if line.strip():
                row = orjson.loads(line)
                yield row if isinstance(row, dict) else {}


def _parquet_rows(file: Path) -> Iterator[Row]:
    parquet = pyarrow.parquet.ParquetFile(file)
    bar = _bar(file)
    with Progress(console=bar["console"], disable=bar["disable"]) as progress:
        task = progress.add_task(bar["description"], total=parquet.metadata.num_rows)
        for batch in parquet.iter_batches(BATCH_ROWS):
            yield from batch.to_pylist()
            progress.advance(task, batch.num_rows)


def _bar(file: Path) -> dict[str, Any]:
    console = Console(stderr=True)
    return {"console": console, "disable": not console.is_terminal, "description": file.name}


def _jsonable(value: Any) -> Any:
    """Return what JSON can say: times in ISO 8601, decimals as numbers where a double holds all their digits."""
    match value:
        case dict():
            return {name: _jsonable(member) for name, member in value.items()}
        case list():
            return [_jsonable(element) for element in value]
        case date() | time():
            return value.isoformat()
        case decimal.Decimal():
            if len(value.as_tuple().digits) > DECIMAL_DIGITS_MAX:
                raise ValueError(f"a decimal has more than {DECIMAL_DIGITS_MAX} digits")
            return float(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("a number is not finite")
        case bytes():
            raise ValueError("JSON cannot hold bytes")
    return value
