"""The options of the data source `tableside`."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableside_client.address import service_url
from tableside_client.connection import Connection
from tableside_client.credential import Credential
from tableside_client.tls import Tls
from tableside_spark.plan.table_schema import TableSchema, fetch_table_schema, wire_keys

_FILE_OPTIONS = {"token_file", "ca_file", "certificate_file", "key_file"}
_TABLE_OPTIONS = {
    "path",
    "url",
    "table",
    "key",
    "value",
    "splits",
    "prefix",
    "partition",
    "partitions",
    "on_mismatch",
    "pushdown",
    "decimals",
    "at_least_once",
} | _FILE_OPTIONS
_STREAM_OPTIONS = {"checkpointlocation", "queryname"}
_CATALOG_PREFIX = "option."
"""The options of CREATE TABLE also have names with it."""
_WITHOUT_CATALOG = (
    "Spark passes no options to a table of its catalog, as CREATE TABLE and saveAsTable make it: "
    "use CREATE TEMPORARY VIEW … USING tableside OPTIONS (…)"
)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The table of a data source, its connection, its key columns in order, and its schema.

    `value` is the name of the column with the JSON text of whole values, if the options name one.
    """

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
    if any(name.startswith(_CATALOG_PREFIX) for name in values):
        raise ValueError(_WITHOUT_CATALOG)
    unknown = sorted(set(values) - _TABLE_OPTIONS - _STREAM_OPTIONS)
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(_TABLE_OPTIONS))}")
    table = values.get("table") or values.get("path", "")
    if not table:
        raise ValueError(f"the option table is required: the name of the table. {_WITHOUT_CATALOG}")
    tls = Tls(values.get("ca_file"), values.get("certificate_file"), values.get("key_file"))
    connection = Connection(service_url(values.get("url", "")), Credential(path=values.get("token_file")), tls=tls)
    tls.require_https(connection.url)
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
