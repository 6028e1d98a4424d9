"""Where the state of a query may be: settings of Spark for each way, and the service's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

SPARKS = "org.apache.spark.sql.execution.streaming.state"
OWN = "tableside.state.TablesideStateStoreProvider"
STATE_STORE = "spark.sql.streaming.stateStore"
TABLE = "state"
BASELINE = "rocksdb"


@dataclass(frozen=True)
class Way:
    """A provider and how it is set. `memory` is what ours keeps, empty for Spark's own."""

    name: str
    provider: str
    memory: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    def settings(self, url: str) -> dict[str, str]:
        """Return the settings of Spark; `url` is where the service is, if there is one."""
        settings = {f"{STATE_STORE}.providerClass": self.provider, **self.more}
        if self.memory:
            settings |= _own(url, self.memory)
        return settings


WAYS = {
    BASELINE: Way(
        "Spark, RocksDB, changelog",
        f"{SPARKS}.RocksDBStateStoreProvider",
        more={f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true"},
    ),
    "hdfs": Way("Spark, HDFS-backed", f"{SPARKS}.HDFSBackedStateStoreProvider"),
    "all": Way("Tableside, memory: all", OWN, "all"),
    "bounded": Way("Tableside, memory: bounded", OWN, "bounded"),
}
"""By the names of the command line, the baseline first."""


def configuration(folder: Path) -> Path:
    """Write the service's configuration: one table for state, in RocksDB."""
    config = {
        "stores": {"local": {"kind": "rocksdb", "path": str(folder / "data")}},
        "tables": {TABLE: {"store": "local", "key": {"place": "string", "item": "string"}}},
    }
    file = folder / "tableside.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def _own(url: str, memory: str) -> dict[str, str]:
    from tableside_spark.state import jar_path

    return {
        "spark.jars": str(jar_path()),
        f"{STATE_STORE}.checkpointFormatVersion": "2",
        "tableside.state.url": url,
        "tableside.state.table": TABLE,
        "tableside.state.memory": memory,
    }
