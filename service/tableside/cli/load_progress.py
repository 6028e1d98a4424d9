"""The progress of a load on standard error: a bar on a terminal, otherwise a line at intervals."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_INTERVAL_S = 10.0
"""The time between two lines if standard error is not a terminal, in seconds."""


class LoadProgress(Protocol):
    """Shows how many rows a load has sent, and their rate."""

    def show(self, rows: int, fraction: float) -> None:
        """Show the number of rows so far, and the fraction of the file, from 0 to 1."""
        ...


@contextmanager
def open_progress(name: str, console: Console | None = None) -> Iterator[LoadProgress]:
    """Show the progress of loading the file `name`."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield Lines(name)
        return
    texts = [TextColumn("{task.fields[rows]:,} rows"), TextColumn("{task.fields[rate]:,.0f} rows/s")]
    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *texts, TimeRemainingColumn()]
    with Progress(*columns, console=console) as progress:
        yield Bar(name, progress)


class Bar:
    """A progress bar."""

    def __init__(self, name: str, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._started_s = clock()
        self._task = progress.add_task(name, total=1.0, rows=0, rate=0.0)

    def show(self, rows: int, fraction: float) -> None:
        """Move the bar."""
        rate = rows / max(self._clock() - self._started_s, 1e-9)
        self._progress.update(self._task, completed=fraction, rows=rows, rate=rate)


class Lines:
    """A line every `LINE_INTERVAL_S`."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._started_s = self._printed_s = clock()

    def show(self, rows: int, fraction: float) -> None:
        """Print a line if one is due."""
        now_s = self._clock()
        if now_s - self._printed_s < LINE_INTERVAL_S:
            return
        self._printed_s = now_s
        rate = rows / (now_s - self._started_s)
        typer.echo(f"tableside: {rows:,} rows sent, {fraction:.0%} of {self._name}, {rate:,.0f} rows/s", err=True)
