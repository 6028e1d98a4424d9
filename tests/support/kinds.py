"""All kinds of store on real servers, with their settings."""

import subprocess
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from servers.install import ensure_command
from support.dynamodb_tables import CREDENTIALS, PATIENCE_S

EMBEDDED = ["memory", "rocksdb"]
REMOTE = ["redis", "redis-cluster", "postgres", "postgres-columns", "dynamodb"]
EVERY = [*EMBEDDED, *REMOTE]

AWS = CREDENTIALS

MEMBERS = ["a", "b", "c", "d", "n", "made", "name with", "size", "#x"]
"""The members of records that the tests use in tables with columns."""


@dataclass(frozen=True)
class Kind:
    """A store's settings, and the environment variables that a process needs to use it."""

    store: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)
    make: Callable[[str], object] = lambda name: None
    """Creates a table that must exist in the store beforehand, by its name there."""

    def configuration(self, **table: Any) -> dict[str, Any]:
        """Return a configuration with one table, `t`, in a location that no other test uses."""
        own = {"store": "s", "name": f"t-{uuid.uuid4().hex}", "create": True, **self.table}
        self.make(own["name"])
        return {"stores": {"s": self.store}, "tables": {"t": {**own, **table}}}


def kind(name: str, request: pytest.FixtureRequest, directory: Path) -> Kind:
    """Return a kind of store and start its server if necessary. Embedded stores use `directory`."""
    match name:
        case "memory":
            return Kind({"kind": "memory"})
        case "rocksdb":
            return Kind({"kind": "rocksdb", "path": str(directory / "data")})
        case "redis":
            return Kind({"kind": "redis", "url": request.getfixturevalue("redis_url")})
        case "redis-cluster":
            [url, *_] = request.getfixturevalue("redis_cluster_urls")
            return Kind({"kind": "redis", "url": url, "cluster": True})
        case "postgres":
            return Kind({"kind": "postgres", "dsn": request.getfixturevalue("postgres_dsn")})
        case "postgres-columns":
            dsn = request.getfixturevalue("postgres_dsn")
            return Kind({"kind": "postgres", "dsn": dsn}, {}, {"layout": "columns"}, partial(_make_columns, dsn))
        case "dynamodb":
            url = request.getfixturevalue("dynamodb_url")
            patient = {"region": "eu-west-1", "read_timeout_s": PATIENCE_S}
            return Kind({"kind": "dynamodb", "endpoint_url": url, **patient}, AWS)
    raise ValueError(name)


def _make_columns(dsn: str, name: str) -> None:
    columns = ", ".join(f'"{member}" jsonb' for member in MEMBERS)
    statement = f'CREATE TABLE "{name}" (key text PRIMARY KEY, {columns})'
    psql = ensure_command("psql", "postgresql-client")
    subprocess.run([psql, dsn, "--quiet", "--set=ON_ERROR_STOP=1", "--command", statement], check=True)
