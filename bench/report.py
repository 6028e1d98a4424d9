"""What a benchmark found, as a table on the terminal and as JSON in a file."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Result:
    """One way to do a thing: how fast, in `unit` per second, and as a ratio to the baseline of its group."""

    group: str
    way: str
    per_second: float
    unit: str
    ratio: float
    target: float | None = None


def group(name: str, unit: str, rates: Sequence[tuple[str, float]], targets: dict[str, float]) -> list[Result]:
    """Return the results of a group whose first rate is the baseline. Targets are ratios, by way."""
    baseline = rates[0][1]
    return [Result(name, way, rate, unit, rate / baseline, targets.get(way)) for way, rate in rates]


def show(results: Sequence[Result]) -> None:
    """Print the results as a table."""
    table = Table("what", "way", "per second", "ratio", "at least")
    for previous, result in zip([None, *results], results, strict=False):
        if previous is not None and previous.group != result.group:
            table.add_section()
        target = "" if result.target is None else f"{result.target:.2f}"
        table.add_row(
            result.group, result.way, f"{result.per_second:,.0f} {result.unit}", f"{result.ratio:.2f}", target
        )
    Console().print(table)


def write(results: Sequence[Result], file: Path) -> None:
    """Write the results as JSON, with the machine and the time."""
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "results": [asdict(result) for result in results],
    }
    file.write_text(json.dumps(document, indent=2) + "\n")
