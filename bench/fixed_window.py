"""PySpark's worker daemon, with windows of a fixed size while a file exists: the comparison of `in_flight`.

Spark runs it as a program, by `spark.python.daemon.module`.
"""

import os
from pathlib import Path
from typing import Any

from pyspark.daemon import manager

from tableside_client.request_window import RequestWindow

FLAG = "TABLESIDE_BENCH_FIXED_WINDOW"
"""The environment variable with the path of the file."""


def fix_windows(flag: Path) -> None:
    """Let every `RequestWindow` created while `flag` exists keep its maximum size."""
    observe = RequestWindow.observe

    def observe_unless_fixed(self: RequestWindow, *arguments: Any, **named: Any) -> None:
        if flag.exists():
            self._size = self._size_max
        else:
            observe(self, *arguments, **named)

    RequestWindow.observe = observe_unless_fixed  # type: ignore[method-assign]


if __name__ == "__main__":
    fix_windows(Path(os.environ[FLAG]))
    manager()
