"""Webdis, an HTTP interface of Redis in C, with the settings of its Debian package except for the addresses."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from .install import ensure_command
from .process import HOST, Server, accepts_connections, free_port, running

THREADS = 2
SILENT = 0


@contextlib.contextmanager
def webdis(directory: Path, redis_url: str) -> Iterator[str]:
    """Run Webdis in front of a Redis and yield its URL."""
    redis, port = urlsplit(redis_url), free_port()
    settings = {
        "redis_host": redis.hostname,
        "redis_port": redis.port,
        "http_host": HOST,
        "http_port": port,
        "threads": THREADS,
        "daemonize": False,
        "database": int(redis.path.strip("/") or 0),
        "verbosity": SILENT,
    }
    file = directory / "webdis.json"
    file.write_text(json.dumps(settings))
    command = [str(ensure_command("webdis", "webdis")), str(file)]
    with running(Server("webdis", command, lambda: accepts_connections(port)), directory):
        yield f"http://{HOST}:{port}"
