"""The stores that the demonstration can keep its records in, and what the service is told of each."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

EMBEDDED = "rocksdb"
KINDS = (EMBEDDED, "redis", "postgres", "dynamodb")


@dataclass(frozen=True)
class Place:
    """Where records are kept, in words; the configuration that says so to the service, and its environment."""

    words: str
    config: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def place(kind: str, folder: Path) -> Iterator[Place]:
    """Start the server of a kind of store, installed first where it is missing; stop it at the end."""
    if kind == EMBEDDED:
        yield Place(f"RocksDB in {folder}")
        return
    with _server(kind, folder) as (options, environment):
        config = folder / "tableside.yaml"  # JSON is YAML
        config.write_text(json.dumps({"stores": {"records": {"kind": kind, **options}}, "auto_create": True}))
        words = f"{kind} at {options.get('url') or options.get('dsn') or options.get('endpoint_url')}"
        yield Place(words, config, environment)


@contextlib.contextmanager
def _server(kind: str, folder: Path) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Run a server on loopback; yield what the service's configuration says of it, and the environment it wants."""
    match kind:
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
