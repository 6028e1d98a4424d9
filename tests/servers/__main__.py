"""Run one server by hand: `python -m servers redis` prints its URL, and stops it on Ctrl-C or SIGTERM."""

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from scripts.bootstrap import SetupError

from .process import ServerFailed
from .shared import SERVERS


def main() -> None:
    """Start the server named on the command line, and wait."""
    parser = argparse.ArgumentParser(prog="python -m servers", description=__doc__)
    parser.add_argument("server", choices=SERVERS)
    chosen: str = parser.parse_args().server
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="tableside-servers-") as scratch,
        SERVERS[chosen](Path(scratch)) as urls,
    ):
        print(*([urls] if isinstance(urls, str) else urls), sep="\n", flush=True)
        signal.pause()


if __name__ == "__main__":
    try:
        main()
    except (SetupError, ServerFailed) as problem:
        sys.exit(f"python -m servers: {problem}")
