"""The log of this process in the service's format, with the previous logging restored afterwards."""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from tableside.telemetry import LogSettings, logs


class Lines:
    """The lines that were logged. `configure` changes the settings."""

    def __init__(self) -> None:
        self.stream = StringIO()

    def configure(self, **settings: Any) -> None:
        logs.configure(LogSettings(**settings), self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.all]


@contextmanager
def logged(**settings: Any) -> Iterator[Lines]:
    root, names = logging.getLogger(), ("", *logs.TRUSTED_LOGGERS)
    before = root.handlers[:], [logging.getLogger(name).level for name in names]
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    lines = Lines()
    try:
        lines.configure(**settings)
        yield lines
    finally:
        logging.captureWarnings(False)
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        root.handlers[:] = before[0]
        for name, level in zip(names, before[1], strict=True):
            logging.getLogger(name).setLevel(level)
