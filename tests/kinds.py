"""Every kind of store with a real server behind it, and what a configuration says of it."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

EMBEDDED = ["memory", "rocksdb"]
REMOTE = ["redis", "redis-cluster", "postgres", "dynamodb"]
EVERY = [*EMBEDDED, *REMOTE]

AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True)
class Kind:
    """The entry of a store in a configuration, and what a process needs in its environment to use it."""

    store: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)

    def configuration(self, **table: Any) -> dict[str, Any]:
        """Return a configuration with one table, `t`, that nobody else uses."""
        own = {"store": "s", "name": f"t-{uuid.uuid4().hex}", "create": True}
        return {"stores": {"s": self.store}, "tables": {"t": {**own, **table}}}


def kind(name: str, request: pytest.FixtureRequest, directory: Path) -> Kind:
    """Return a kind of store, its server started if it was not yet; `directory` is for an embedded one."""
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
        case "dynamodb":
            url = request.getfixturevalue("dynamodb_url")
            return Kind({"kind": "dynamodb", "endpoint_url": url, "region": "eu-west-1"}, AWS)
    raise ValueError(name)
