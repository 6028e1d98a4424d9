"""Figures of all variants by round, with medians and ratios to the baseline of the same round, and their tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from rich.table import Table

from .figures import Figures
from .ways import BASELINE, WAYS

SECONDS, MILLISECONDS, MEGABYTES, PLAIN = (1.0, "s", 1), (1e3, "ms", 0), (1e-6, "MB", 1), (1.0, "", 2)
"""Factor, unit and number of decimals of a figure."""

Column = tuple[str, tuple[float, str, int], bool]
"""The name of a figure, its format, and whether its ratio is shown."""

TIMES: Mapping[str, Column] = {
    "all": ("wall_s", SECONDS, True),
    "a batch, median": ("batch_s", MILLISECONDS, True),
    "95 %": ("batch_p95_s", MILLISECONDS, True),
    "puts, all tasks": ("updates_s", SECONDS, True),
    "commits, all tasks": ("commits_s", SECONDS, True),
    "CPU": ("cpu_s", SECONDS, True),
    "of it service": ("cpu_service_s", SECONDS, False),
    "garbage": ("collecting_s", SECONDS, False),
    "cores of others": ("cores_of_others", PLAIN, False),
}
SPACES: Mapping[str, Column] = {
    "heap, peak": ("heap_peak_bytes", MEGABYTES, True),
    "heap, state": ("heap_state_bytes", MEGABYTES, True),
    "Java, resident": ("resident_bytes", MEGABYTES, True),
    "service": ("resident_service_bytes", MEGABYTES, False),
    "stored": ("stored_bytes", MEGABYTES, True),
    "first batch anew": ("recovery_s", MILLISECONDS, True),
    "loads, 1 by 1": ("load_s", MILLISECONDS, True),
    "read all": ("read_s", MILLISECONDS, True),
}
EXPLAINED = (
    "Medians of rounds, with ratios to the first row in brackets. Batches are those that change existing keys.",
    "State: live heap minus live heap at the start. First batch anew: extra time compared with the following batches.",
)


@dataclass
class Found:
    """The figures of each variant by round, for one setting, or the reason of its failure."""

    _figures: dict[str, dict[int, Figures]] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)

    def adds(self, way: str, turn: int, figures: Figures) -> None:
        """Add the figures of a round."""
        self._figures.setdefault(way, {})[turn] = figures

    def fails(self, way: str, why: str) -> None:
        """Record the reason of a failure."""
        self._failures[way] = why

    def ways(self) -> list[str]:
        """Return the variants that were measured or failed, the baseline first."""
        return [name for name in WAYS if name in self._figures or name in self._failures]

    def failure(self, way: str) -> str | None:
        """Return the reason if a variant failed in any round."""
        return self._failures.get(way)

    def median(self, way: str, figure: str) -> float | None:
        """Return the median of a figure, or None if the variant has always failed."""
        values = [each[figure] for each in self._figures.get(way, {}).values() if figure in each]
        return median(values) if values else None

    def ratio(self, way: str, figure: str) -> float | None:
        """Return the median of the ratios of a figure to the baseline's in the same round, or None without ratios."""
        ratios = list(self._ratios(way, figure))
        return median(ratios) if ratios else None

    def figure(self, way: str, figure: str) -> float:
        """Return the median of a figure of a variant that has not failed."""
        return median(each[figure] for each in self._figures[way].values())

    def counts(self, way: str) -> dict[str, int]:
        """Return the medians of all figures as whole numbers, seconds as milliseconds."""
        names = dict.fromkeys(name for each in self._figures[way].values() for name in each)
        medians = {name: self.median(way, name) for name in names}
        return dict(_whole(name, value) for name, value in medians.items() if value is not None)

    def _ratios(self, way: str, figure: str) -> Iterator[float]:
        baseline = self._figures.get(BASELINE, {})
        for turn, figures in self._figures.get(way, {}).items():
            base = baseline.get(turn, {}).get(figure, 0.0)
            if base > 0:
                yield figures[figure] / base


def _whole(name: str, value: float) -> tuple[str, int]:
    return (f"{name.removesuffix('_s')}_ms", round(value * 1e3)) if name.endswith("_s") else (name, round(value))


def tables(title: str, found: Found) -> list[Table]:
    """Return the tables of one setting."""
    times, spaces = (_table(columns, found) for columns in (TIMES, SPACES))
    times.title, spaces.caption = f"\n{title}", "\n".join(EXPLAINED)
    return [times, spaces]


def _table(columns: Mapping[str, Column], found: Found) -> Table:
    table = Table("way", title_justify="left", caption_justify="left")
    for heading in columns:
        table.add_column(heading, justify="right")
    for way in found.ways():
        table.add_row(WAYS[way].name, *(_cell(found, way, column) for column in columns.values()))
    return table


def _cell(found: Found, way: str, column: Column) -> str:
    figure, (factor, unit, decimals), with_ratio = column
    value, ratio = found.median(way, figure), found.ratio(way, figure)
    if value is None:
        return found.failure(way) or ""
    shown = f"{value * factor:,.{decimals}f} {unit}".rstrip()
    return f"{shown} ({ratio:.2f})" if with_ratio and ratio is not None else shown
