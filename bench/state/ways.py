"""The measured state stores: Spark's settings for each variant, and the service's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from tableside_spark.state import settings

SPARKS = "org.apache.spark.sql.execution.streaming.state"
STATE_STORE = "spark.sql.streaming.stateStore"
TABLE = "state"
BASELINE = "rocksdb"
MEMORY_BYTES_MAX = 8 << 20
"""The memory limit of `bounded` for each of the four partitions: far less than their values need."""
DISK_BYTES_MAX = 1 << 30
"""The limit of local disk copies for each partition: more than their values need."""
# On a local disk, Hadoop's default starts two processes for each renamed file, and Spark's own providers rename many
# files. This setting is the realistic one.
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
COMMON = {"spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER}


@dataclass(frozen=True)
class Way:
    """One of Spark's own providers with its settings, or Tableside's provider with its memory mode."""

    name: str
    provider: str = ""
    memory: Literal["all", "bounded"] | None = None
    disk_bytes_max: int = DISK_BYTES_MAX
    more: Mapping[str, str] = field(default_factory=dict)

    def configured(self, url: str) -> dict[str, str]:
        """Return Spark's settings. `url` is the service's address, if there is a service."""
        if self.memory is not None:
            ours = settings(
                url,
                TABLE,
                memory=self.memory,
                memory_bytes_max=MEMORY_BYTES_MAX,
                disk_bytes_max=self.disk_bytes_max,
            )
            return ours | COMMON
        return {f"{STATE_STORE}.providerClass": self.provider, **self.more, **COMMON}


WAYS = {
    BASELINE: Way(
        "Spark, RocksDB, changelog",
        f"{SPARKS}.RocksDBStateStoreProvider",
        more={f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true"},
    ),
    "hdfs": Way("Spark, HDFS-backed", f"{SPARKS}.HDFSBackedStateStoreProvider"),
    "all": Way("Tableside, memory: all", memory="all"),
    "bounded": Way("Tableside, memory: bounded", memory="bounded"),
    "fetching": Way("Tableside, memory: bounded, no disk", memory="bounded", disk_bytes_max=0),
}
"""The variants by their names on the command line, the baseline first."""


def configuration(folder: Path) -> Path:
    """Write the service's configuration: one table for state, in RocksDB."""
    config = {
        "stores": {"local": {"kind": "rocksdb", "path": str(folder / "data")}},
        "tables": {TABLE: {"store": "local", "key": {"place": "string", "item": "string"}}},
    }
    file = folder / "tableside.yaml"
    file.write_text(yaml.safe_dump(config))
    return file
