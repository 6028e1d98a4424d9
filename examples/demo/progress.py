"""Print the current step, its duration and its throughput in rows per second."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass
class Step:
    """One step of the demonstration. The code of the step sets the number of rows."""

    title: str
    rows: int = 0
    seconds: float = 0.0

    @property
    def rows_per_s(self) -> float:
        """Return the throughput."""
        return self.rows / self.seconds


@dataclass
class Progress:
    """Prints a line when a step begins and when it ends, and returns a table of all steps."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print a line, prefixed with the seconds since the start."""
        elapsed_s = time.monotonic() - self.began
        self.console.print(f"[{elapsed_s:6.1f} s] {text}", markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Time a step."""
        self.say(f"{title} …")
        step = Step(title)
        started = time.monotonic()
        yield step
        step.seconds = time.monotonic() - started
        self.steps.append(step)
        self.say(f"  done in {step.seconds:.1f} s{_throughput(step)}")

    def costs(self) -> Table:
        """Return a table with the duration and throughput of every step."""
        table = Table("step", title="What it cost", title_justify="left")
        for heading in ("rows", "seconds", "rows per second"):
            table.add_column(heading, justify="right")
        for step in self.steps:
            rows = (f"{step.rows:,}", f"{step.rows_per_s:,.0f}") if step.rows else ("", "")
            table.add_row(step.title, rows[0], f"{step.seconds:.1f}", rows[1])
        table.add_section()
        table.add_row("all of it", "", f"{time.monotonic() - self.began:.1f}", "")
        return table


def _throughput(step: Step) -> str:
    return f": {step.rows:,} rows, {step.rows_per_s:,.0f} rows per second" if step.rows else ""
