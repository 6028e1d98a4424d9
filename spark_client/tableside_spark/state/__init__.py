"""The state of Structured Streaming queries in a table, and the jar of its provider. The import requires no Spark."""

from tableside_spark.state.inspect import QueryNotFound, State, export
from tableside_spark.state.records import Contents, Place, Progress, Query, Snapshot, Store, Version
from tableside_spark.state.session_config import JarNotFound, configure, jar_path, settings

__all__ = [
    "Contents", "JarNotFound", "Place", "Progress", "Query", "QueryNotFound", "Snapshot", "State", "Store", "Version",
    "configure", "export", "jar_path", "settings",
]  # fmt: skip
