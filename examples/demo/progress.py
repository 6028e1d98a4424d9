"""Print the steps, their progress, and a table of their durations and throughputs."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from rich.console import Console
from rich.table import Table

REPORT_S = 1.5


class Part(Enum):
    """The part of the demonstration that contains a step."""

    START = "start"
    WORK = "work"
    CHECK = "check"


@dataclass
class Step:
    """One step of the demonstration. The code of the step sets the number of rows."""

    title: str
    part: Part
    rows: int = 0
    seconds: float = 0.0


@dataclass
class Progress:
    """Prints a line when a step begins, while it runs and when it ends, and returns a table of all steps."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print a line, prefixed with the seconds since the start."""
        elapsed_s = time.monotonic() - self.began
        self.console.print(f"[{elapsed_s:6.1f} s] {text}", markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def step(self, title: str, part: Part, done: Callable[[], int] | None = None) -> Iterator[Step]:
        """Time a step. While it runs, print its progress every 1.5 seconds. `done` returns the rows read so far."""
        self.say(f"{title} …")
        step = Step(title, part)
        started = time.monotonic()
        with self._reports(done or (lambda: 0)):
            yield step
        step.seconds = time.monotonic() - started
        self.steps.append(step)
        self.say(f"  done in {step.seconds:.1f} s{_throughput(step.rows, step.seconds)}")

    @contextlib.contextmanager
    def _reports(self, done: Callable[[], int]) -> Iterator[None]:
        """Print the progress in a thread."""
        ended, started = threading.Event(), time.monotonic()

        def report() -> None:
            while not ended.wait(REPORT_S):
                seconds = time.monotonic() - started
                rows = done()
                self.say(f"  … {seconds:.1f} s{_throughput(rows, seconds, 'rows read')}")

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def costs(self) -> Table:
        """Return a table with the duration and throughput of every step, and the sum of each part."""
        table = Table("step", title="What it cost", title_justify="left")
        for heading in ("rows", "seconds", "rows per second"):
            table.add_column(heading, justify="right")
        for part in Part:
            steps = [step for step in self.steps if step.part is part]
            for step in steps:
                table.add_row(f"{part.value}: {step.title}", *_figures(step))
            table.add_section()
        for part in Part:
            steps = [step for step in self.steps if step.part is part]
            table.add_row(f"all of {part.value}", "", f"{sum(step.seconds for step in steps):.1f}", "")
        table.add_row("everything", "", f"{time.monotonic() - self.began:.1f}", "")
        return table


def _figures(step: Step) -> tuple[str, str, str]:
    if not step.rows:
        return "", f"{step.seconds:.1f}", ""
    return f"{step.rows:,}", f"{step.seconds:.1f}", f"{step.rows / step.seconds:,.0f}"


def _throughput(rows: int, seconds: float, unit: str = "rows") -> str:
    return f": {rows:,} {unit}, {rows / seconds:,.0f} per second" if rows else ""
