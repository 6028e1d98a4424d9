"""The state store providers that the suite tests, and the arguments of its cases."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.running import Service, running

SPARKS = "org.apache.spark.sql.execution.streaming.state"
OURS = "tableside.state.TablesideStateStoreProvider"
TABLE = "state"
CONFIG = """
stores:
  local: {kind: %s}
tables:
  state: {store: local, key: {place: string, item: string}}
  plain: {store: local}
"""
KEPT_IN_MEMORY = CONFIG % "memory"
KEPT_ON_DISK = CONFIG % "rocksdb, path: data"


@dataclass(frozen=True)
class Subject:
    """A provider and its settings."""

    provider: str
    checkpoint_format: int
    settings: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        name = self.provider.rpartition(".")[2].removesuffix("StateStoreProvider").removesuffix("Backed")
        disk = int(self.settings.get("disk_bytes_max", 0))
        way = [self.settings["memory"], *(["disk"] if disk else [])] if self.is_ours else []
        return "-".join([name, f"v{self.checkpoint_format}", *way])

    @property
    def is_ours(self) -> bool:
        """Whether this is Tableside's provider, which keeps its state in a table."""
        return self.provider == OURS

    def arguments(self, directory: Path, url: str = "") -> dict[str, Any]:
        """Return the arguments of a case that tests this provider."""
        return {
            "provider": self.provider,
            "format": self.checkpoint_format,
            "directory": str(directory),
            "settings": {**self.settings, "url": url, "table": TABLE} if self.is_ours else {},
        }


BOUNDED = {"memory": "bounded", "memory_records_max": "3", "disk_bytes_max": "0"}
"""Settings with so few values in memory that most are fetched."""

COPIED = {**BOUNDED, "disk_bytes_max": str(1 << 20)}
"""The same, with copies of all values on the local disk."""

CROWDED = {**BOUNDED, "disk_bytes_max": "600"}
"""The same, with a local disk that has room for few copies, which others soon evict."""

IN_MEMORY = [Subject(OURS, 1, {"memory": "all"}), Subject(OURS, 2, {"memory": "all"})]
FETCHING = [Subject(OURS, 1, BOUNDED), Subject(OURS, 2, BOUNDED)]
ON_DISK = Subject(OURS, 2, COPIED)
TABLESIDE = [
    IN_MEMORY[0],
    pytest.param(IN_MEMORY[1], marks=pytest.mark.daily),
    pytest.param(FETCHING[0], marks=pytest.mark.daily),
    pytest.param(FETCHING[1], marks=pytest.mark.full),
    Subject(OURS, 2, CROWDED),
]
"""Both formats, once with all values in memory and once with few there and few on disk. Other runs try more ways."""

HDFS_BACKED = Subject(f"{SPARKS}.HDFSBackedStateStoreProvider", 1)
HDFS = pytest.param(HDFS_BACKED, marks=pytest.mark.full)
ROCKSDB = pytest.param(Subject(f"{SPARKS}.RocksDBStateStoreProvider", 2), marks=pytest.mark.full)
"""Spark's providers. They pass the cases too, which shows that the cases require nothing else."""


@pytest.fixture(scope="session")
def state_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a table for the state of queries. Each case has a separate query."""
    directory = tmp_path_factory.mktemp("state-service")
    config = directory / "config.yaml"
    config.write_text(KEPT_IN_MEMORY)
    with running(directory, config) as started:
        yield started


@pytest.fixture
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The arguments of a case for the provider in the test's parameter."""
    subject: Subject = request.param
    url = request.getfixturevalue("state_service").url if subject.is_ours else ""
    return subject.arguments(tmp_path, url)
