"""The options of the data source `tableside`, and the meaning of the columns of a frame or a schema."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from pyspark.sql.types import IntegralType, StringType, StructField, StructType

from tableside_client.json_reader import OnMismatch, require_known
from tableside_client.table_schema import PARTITION_COLUMN, TableSchema, wire_keys
from tableside_spark.executor.task_client import Connection, fetch_table_schema
from tableside_spark.plan.expiry import ExpiryArgument, require_one

_FILE_OPTIONS = ("token_file", "ca_file", "certificate_file", "key_file")
_TABLE_OPTIONS = {
    *_FILE_OPTIONS, "path", "url", "table", "key", "value", "splits", "prefix", "partition", "partitions",
    "on_mismatch", "pushdown", "decimals", "sequence_by", "ttl_s", "expires_at", "truncate", "allow_empty",
    "at_least_once",
}  # fmt: skip
_STREAM_OPTIONS = {"checkpointlocation", "queryname"}
_WITHOUT_CATALOG = (
    "Spark passes no options to a table of its catalog, as CREATE TABLE and saveAsTable make it: "
    "use CREATE TEMPORARY VIEW … USING tableside OPTIONS (…)"
)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The table of a data source, with its key columns in order. `value` names the column with JSON text, if any."""

    connection: Connection
    table: str
    keys: tuple[str, ...]
    table_schema: TableSchema
    value: str | None = None


def parse_options(options: Mapping[str, str]) -> TableOptions:
    """Parse the options and fetch the table's schema. Raises `ValueError` for unknown options and for tokens."""
    values = {name.lower(): option for name, option in options.items()}
    if "token" in values:
        raise ValueError("the option token is rejected: plans and logs show options. Use token_file or TABLESIDE_TOKEN")
    if any(name.startswith("option.") for name in values):  # of CREATE TABLE
        raise ValueError(_WITHOUT_CATALOG)
    unknown = sorted(set(values) - _TABLE_OPTIONS - _STREAM_OPTIONS)
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(_TABLE_OPTIONS))}")
    table = values.get("table") or values.get("path", "")
    if not table:
        raise ValueError(f"the option table is required: the name of the table. {_WITHOUT_CATALOG}")
    files: dict[str, Any] = {name: values.get(name) for name in _FILE_OPTIONS}
    connection = Connection(values.get("url", ""), **files)
    facts = fetch_table_schema(connection, table)
    named = tuple(name.strip() for name in values.get("key", "").split(",") if name.strip())
    keys = wire_keys(facts, named)[0] if named else tuple(name or "key" for name in facts.key_names)
    return TableOptions(connection, table, keys, facts, values.get("value"))


def parse_flag(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option is `true`. The default is false."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ValueError(f"the option {name} is true or false, not {text!r}")
    return text == "true"


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expiry of the records to write: seconds, or the column that the option `argument` names."""

    argument: ExpiryArgument
    given: float | str

    @property
    def column(self) -> str | None:
        """The name of the column, if there is one."""
        return self.given if isinstance(self.given, str) else None


def parse_expiry(options: Mapping[str, str]) -> Expiry | None:
    """Parse `ttl_s`, a number or a column, and `expires_at`, a column. Raises `ValueError` if both are given."""
    ttl_s, expires_at = options.get("ttl_s"), options.get("expires_at")
    require_one(ttl_s, expires_at)
    if ttl_s is None:
        return None if expires_at is None else Expiry("expires_at", expires_at)
    try:
        return Expiry("ttl_s", float(ttl_s))
    except ValueError:
        return Expiry("ttl_s", ttl_s)


ROLE = "tableside"
"""In the metadata of a column that is the JSON text of whole values, so that a later write recognizes it."""


@dataclass(frozen=True)
class Columns:
    """The columns of records: of the key in order, the partition's index, the whole value's JSON, and members."""

    keys: tuple[str, ...]
    partition: str | None
    text: str | None
    members: tuple[StructField, ...]

    @classmethod
    def from_schema(cls, schema: StructType, target: TableOptions) -> Self:
        """Find the columns. Raises `ValueError` if a named one is missing, or has a type that is not valid."""
        for name in (*target.keys, *([target.value] if target.value else [])):
            require_column(name, schema, target.table)
        others = [field for field in schema.fields if field.name not in target.keys]
        partition = None
        if target.table_schema.partitions:
            partition = next((field.name for field in others if field.name.lower() == PARTITION_COLUMN), None)
        text = target.value or next((field.name for field in others if field.metadata.get(ROLE) == "value"), None)
        _require_type(schema, partition, IntegralType, "an integer, the index of a partition")
        _require_type(schema, text, StringType, "a string, the JSON text of a value")
        return cls(target.keys, partition, text, tuple(f for f in others if f.name not in (partition, text)))


def require_column(name: str, schema: StructType, table: str) -> None:
    """Raise `ValueError` if the columns of a table lack one that an option names."""
    if name not in schema.names:
        raise ValueError(
            f"table {table}: there is no column {name!r}, only {', '.join(schema.names)}. "
            "Name it in the same case, or set the option key, value, sequence_by, ttl_s or expires_at to another column"
        )


def _require_type(schema: StructType, name: str | None, kind: type, wanted: str) -> None:
    if name is not None and not isinstance(schema[name].dataType, kind):
        raise ValueError(f"column {name} is {schema[name].dataType.simpleString()}, not {wanted}")


SPLITS_PER_CPU = 2
SPLITS_DEFAULT_MAX = 32
"""Each split costs a task, about 50 ms of a CPU. Too few splits leave CPUs of a cluster idle."""
SPLITS_MAX = 1024


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The part of a table to read: `partition` is the first part of a key, `partitions` are indexes."""

    splits: int
    prefix: str | None = None
    partition: str | None = None
    partitions: tuple[int, ...] | None = None
    on_mismatch: OnMismatch = "fail"
    pushdown: bool = False


def parse_read_options(options: Mapping[str, str], table_schema: TableSchema) -> ReadOptions:
    """Parse the options. Raises `ValueError` for options that are not valid for this table."""
    on_mismatch = options.get("on_mismatch", "fail")
    require_known(on_mismatch)
    splits = options.get("splits")
    if splits is not None and not (splits.isdecimal() and 1 <= int(splits) <= SPLITS_MAX):
        raise ValueError(f"the option splits is a number from 1 to {SPLITS_MAX}, not {splits!r}")
    partition, partitions = options.get("partition"), options.get("partitions")
    if partition is not None and table_schema.partitions and len(table_schema.key_types) == 1:
        partition, partitions = None, partition
    indexes: tuple[int, ...] | None = None
    count = table_schema.partitions
    if partitions is not None:
        if not count:
            raise ValueError("the option partitions is for a partitioned table")
        texts = [index.strip() for index in partitions.split(",")]
        if not all(index.isdecimal() and int(index) < count for index in texts):
            raise ValueError(f"partitions are numbers from 0 to {count - 1}, separated by commas, not {partitions!r}")
        indexes = tuple(sorted({int(index) for index in texts}))
    return ReadOptions(
        splits=default_splits() if splits is None else int(splits),
        prefix=options.get("prefix"),
        partition=partition,
        partitions=indexes,
        on_mismatch=cast("OnMismatch", on_mismatch),
        pushdown=parse_flag(options, "pushdown"),
    )


def default_splits() -> int:
    """Return the default number of splits. A data source knows only the CPUs of the driver, not Spark's slots."""
    return min(SPLITS_PER_CPU * (os.cpu_count() or 1), SPLITS_DEFAULT_MAX)
