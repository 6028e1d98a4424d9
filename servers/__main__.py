"""Run one server by hand: `python -m servers redis` prints its URL, and stops it on Ctrl-C or SIGTERM."""

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from scripts.bootstrap import SetupError

from .dynamodb import dynalite, dynamodb_local
from .kafka import kafka
from .postgres import postgres
from .process import ServerFailed
from .redis import redis, redis_cluster

SERVERS: Mapping[str, Callable[[Path], AbstractContextManager[str | list[str]]]] = {
    "redis": redis,
    "cluster": redis_cluster,
    "postgres": postgres,
    "dynamodb": dynamodb_local,
    "dynalite": dynalite,
    "kafka": kafka,
}


def main() -> None:
    """Start the server that the command line names, and wait."""
    parser = argparse.ArgumentParser(prog="python -m servers", description=__doc__)
    parser.add_argument("server", choices=SERVERS)
    start = SERVERS[parser.parse_args().server]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="tableside-servers-") as scratch,
        start(Path(scratch)) as urls,
    ):
        print(*([urls] if isinstance(urls, str) else urls), sep="\n", flush=True)
        signal.pause()


if __name__ == "__main__":
    try:
        main()
    except (SetupError, ServerFailed) as problem:
        sys.exit(f"python -m servers: {problem}")
