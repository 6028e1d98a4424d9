"""The state of Structured Streaming queries in a table: session settings, inspection, export and deletion.

Importing this package does not require Spark. The state store provider is written in Java: a jar in this package, for
Spark's driver and executors.
"""

from tableside_spark.state.inspect import QueryNotFound, State, export
from tableside_spark.state.records import Contents, Place, Progress, Query, Snapshot, Store, Version
from tableside_spark.state.session_config import JarNotFound, configure, jar_path, settings

__all__ = [
    "Contents", "JarNotFound", "Place", "Progress", "Query", "QueryNotFound", "Snapshot", "State", "Store", "Version",
    "configure", "export", "jar_path", "settings",
]  # fmt: skip
