"""Measure all variants in turn over several rounds, so that disturbances affect all of them."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ..report import WIDTH, Result, group
from ..turns import hand_over
from . import inputs
from .found import Found, tables
from .inputs import Inputs
from .runs import Exhausted, Setting, measured
from .ways import BASELINE, WAYS


@dataclass(frozen=True)
class Plan:
    """The size of the state and the settings: all rounds use the first heap size and the first interval.

    Each other interval is measured once with the first heap size, and each other heap size with the first interval.
    """

    keys: int = 1_000_000
    batches: int = 50
    payload_bytes: int = 0
    heaps_mib: Sequence[int] = (2048, 640)
    maintenance_s: Sequence[float] = (60.0, 5.0)
    run_max_s: float = 900.0
    ways: Sequence[str] = tuple(WAYS)

    def __str__(self) -> str:
        return f"{self.keys:,} keys" + (f" with {self.payload_bytes:,} bytes each" if self.payload_bytes else "")

    def settings(self, rounds: int) -> Iterator[Setting]:
        """Yield the setting of each round."""
        for _ in range(rounds):
            yield Setting(self.heaps_mib[0], self.maintenance_s[0])
        for interval_s in self.maintenance_s[1:]:
            yield Setting(self.heaps_mib[0], interval_s)
        for heap_mib in self.heaps_mib[1:]:
            yield Setting(heap_mib, self.maintenance_s[0])


def run(plan: Plan, rounds: int = 3) -> list[Result]:
    """Measure all variants, print tables, and return the median rows per second together with all figures."""
    found: dict[Setting, Found] = {}
    with tempfile.TemporaryDirectory(prefix="tableside-bench-") as name:
        rows = inputs.write(Path(name) / "rows", plan.keys, plan.batches, plan.payload_bytes)
        for turn, setting in enumerate(plan.settings(rounds)):
            _round(found.setdefault(setting, Found()), plan, rows, setting, turn)
    console = Console(width=WIDTH)
    for setting, of_setting in found.items():
        for table in tables(f"State of {plan}, {rows.rows:,} rows, {setting}", of_setting):
            console.print(table)
    return [result for setting, each in found.items() for result in _results(setting, each, rows)]


def _round(found: Found, plan: Plan, rows: Inputs, setting: Setting, turn: int) -> None:
    """Measure all variants once. Each round begins with a different one."""
    first = turn % len(plan.ways)
    for name in [*plan.ways[first:], *plan.ways[:first]]:
        try:
            figures = measured(WAYS[name], rows, setting, plan.run_max_s)
        except Exhausted as why:
            found.fails(name, str(why))
            print(f"  {WAYS[name].name}, {setting}: {why}", flush=True)
        else:
            found.adds(name, turn, figures)
            print(f"  {WAYS[name].name}, {setting}: {figures['wall_s']:.1f} s", flush=True)
        hand_over()


def _results(setting: Setting, found: Found, rows: Inputs) -> list[Result]:
    """Return the results of a setting if the baseline completed, without variants that failed."""
    names = [name for name in WAYS if found.median(name, "wall_s") is not None]
    if BASELINE not in names:
        return []
    rates = [(WAYS[name].name, rows.rows / found.figure(name, "wall_s")) for name in names]
    results = group(f"state, {setting}", "rows", rates, {})
    return [replace(result, counts=found.counts(name)) for result, name in zip(results, names, strict=True)]
