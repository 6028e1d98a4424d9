"""The stores that the demonstration supports, and the service's configuration for each."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

EMBEDDED = "rocksdb"
KINDS = (EMBEDDED, "redis", "postgres", "dynamodb")


@dataclass(frozen=True)
class Place:
    """A store: its description, the service's configuration file for it, and the environment variables."""

    words: str
    config: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def place(kind: str, folder: Path, token: str | None = None) -> Iterator[Place]:
    """Start the server of a kind of store, and install it first if necessary. Stop it at the end.

    With a token, the service rejects requests without it.
    """
    if kind == EMBEDDED and token is None:
        yield Place(f"RocksDB in {folder}")
        return
    with _server(kind, folder) as (options, environment):
        words = f"{kind} at {options.get('url') or options.get('dsn') or options.get('endpoint_url') or folder}"
        yield Place(words, _config(folder, {"kind": kind, **options}, token), environment)


def _config(folder: Path, store: Mapping[str, str], token: str | None) -> Path:
    settings: dict[str, object] = {"stores": {"records": store}, "auto_create": True}
    if token is not None:
        rights = {"name": "demo", "read": ["*"], "write": ["*"]}
        settings["auth"] = {"tokens": [rights | {"sha256": sha256(token.encode()).hexdigest()}]}
    config = folder / "tableside.yaml"
    config.write_text(json.dumps(settings))  # JSON is YAML
    return config


@contextlib.contextmanager
def _server(kind: str, folder: Path) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Run a server on loopback. Yield its settings for the service's configuration, and environment variables."""
    match kind:
        case "rocksdb":
            yield {"path": str(folder / "tableside-data")}, {}
        case "redis":
            from servers.redis import redis

            with redis(folder / kind) as url:
                yield {"url": url}, {}
        case "postgres":
            from servers.postgres import postgres

            with postgres(folder / kind) as dsn:
                yield {"dsn": dsn}, {}
        case "dynamodb":
            from servers.dynamodb import dynamodb_local

            with dynamodb_local(folder / kind) as url:
                options = {"endpoint_url": url, "region": "eu-west-1"}
                yield options, {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
        case _:
            raise ValueError(f"no server for {kind}")
