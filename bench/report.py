"""Benchmark results as tables on the terminal and as a JSON file."""

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from .cores import Cores

PLAIN = ("what", "way", "per second", "ratio", "at least")
PER_CORE = (
    *("what", "way", "per second", "ratio", "per CPU second", "ratio", "at least"),
    *("ratio, of all CPU", "cores: own + store + clients"),
)

WIDTH = 180
"""The width of tables if the output is not a terminal."""


@dataclass(frozen=True)
class PerCore:
    """The rate per CPU second of the measured process, and the CPU use of the other processes.

    `ratio_of_all` compares the rates per CPU second of all processes, including the store's server.
    """

    per_second: float
    ratio: float
    ratio_of_all: float
    cores: Cores


@dataclass(frozen=True)
class Result:
    """The result of one variant: its rate in `unit` per second, and the ratio to the baseline of its group.

    `target` is the lowest acceptable ratio, per CPU second if that is measured. `table` is the title of a printed
    table, `counts` has other counters of the measurement by name. `rounds` are the rates of all measurements.
    """

    group: str
    way: str
    per_second: float
    unit: str
    ratio: float
    target: float | None = None
    table: str = ""
    per_core: PerCore | None = None
    counts: Mapping[str, int] | None = None
    rounds: Sequence[float] = ()


def group(name: str, unit: str, rates: Sequence[tuple[str, float]], targets: Mapping[str, float]) -> list[Result]:
    """Return the results of a group whose first rate is the baseline. Targets are ratios, by way."""
    baseline = rates[0][1]
    return [Result(name, way, rate, unit, rate / baseline, targets.get(way)) for way, rate in rates]


def show(results: Sequence[Result]) -> None:
    """Print the results in one table for each name in `table`."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for title, of_table in groupby(results, lambda result: result.table):
        console.print(_table(title, list(of_table)))


def _table(title: str, results: Sequence[Result]) -> Table:
    what, *columns = PER_CORE if results[0].per_core else PLAIN
    table = Table(Column(what, no_wrap=True), *columns, title=title or None, title_justify="left")
    for _, of_group in groupby(results, lambda result: result.group):
        table.add_section()
        for result in of_group:
            table.add_row(*_cells(result))
    return table


def _cells(result: Result) -> list[str]:
    cells = [result.group, result.way, f"{result.per_second:,.0f} {result.unit}", f"{result.ratio:.2f}"]
    target = "" if result.target is None else f"{result.target:.2f}"
    if result.per_core is None:
        return [*cells, target]
    core, cores = result.per_core, result.per_core.cores
    shares = (f"{share:.2f}" for share in (cores.own, cores.server, cores.clients))
    ratios = f"{core.ratio:.2f}", target, f"{core.ratio_of_all:.2f}"
    return [*cells, f"{core.per_second:,.0f}", *ratios, " + ".join(shares)]


def write(results: Sequence[Result], file: Path) -> None:
    """Write the results as JSON, with the machine and the time."""
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "results": [asdict(result) for result in results],
    }
    file.write_text(json.dumps(document, indent=2) + "\n")
