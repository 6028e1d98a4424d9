"""Format the figures as two tables. The first has times, the second memory, disk use and the restart."""

from collections.abc import Mapping

from rich.table import Table

from .found import Found
from .ways import WAYS

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


def of(title: str, found: Found) -> list[Table]:
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
