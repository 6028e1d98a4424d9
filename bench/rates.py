"""Write the rates of `scripts/bench batch` into the README and the page about operations: `python -m bench.rates`.

The rates are those of `bench-results.json`, or of the file that an argument names, rounded to two digits.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from scripts.bootstrap import ROOT

from .batches import STORES, Shape
from .cases import PLAIN, REALISTIC, REALISTIC_LARGE, Case, Form, Op

Results: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""Results by group and way."""

ROWS = 1000


@dataclass(frozen=True)
class RateTable:
    """A table of a page, found by its first heading, with one line for each operation, form and case."""

    page: str
    heading: str
    per_cpu_second: bool
    lines: Mapping[str, tuple[Op, Form, Case]]

    def filled(self, text: str, results: Results) -> str:
        """Return the text of the page with the rates.

        Raises:
            ValueError: The page has no such table.
            KeyError: A rate is missing.
        """
        before, heading, after = text.partition(f"| {self.heading} |")
        if not heading:
            raise ValueError(f"{self.page} has no table with the heading {self.heading!r}")
        rest = after.split("\n\n", 1)[1]
        return f"{before}{self._table(results)}\n\n{rest}"

    def _table(self, results: Results) -> str:
        lines = [" | ".join([self.heading, *STORES])]
        for label, (op, form, case) in self.lines.items():
            found = [results[f"{store}, {Shape(op, form, ROWS)}", case.name] for store in STORES]
            lines.append(" | ".join([label, *map(self._rate, found)]))
        head, *others = (f"| {line} |" for line in lines)
        return "\n".join([head, "|---" * (1 + len(STORES)) + "|", *others])

    def _rate(self, result: Mapping[str, Any]) -> str:
        rate = result["per_core"]["per_second"] if self.per_cpu_second else result["per_second"]
        return f"{float(f'{rate:.2g}'):,.0f}"


TABLES = (
    RateTable(
        "README.md",
        "records per second",
        per_cpu_second=False,
        lines={
            "get, 100 bytes": ("get", "Arrow", REALISTIC),
            "get, 1 KB": ("get", "Arrow", REALISTIC_LARGE),
            "put, 100 bytes": ("put", "Arrow", REALISTIC),
            "put, 1 KB": ("put", "Arrow", REALISTIC_LARGE),
            "update, 100 bytes": ("update", "Arrow", REALISTIC),
            "get, 100 bytes, only key and value": ("get", "Arrow", PLAIN),
            "put, 100 bytes, only key and value": ("put", "Arrow", PLAIN),
        },
    ),
    RateTable(
        "docs/operations.md",
        "records per second of CPU time",
        per_cpu_second=True,
        lines={
            "get, 100 bytes": ("get", "Arrow", REALISTIC),
            "get, 1 KB": ("get", "Arrow", REALISTIC_LARGE),
            "put, 100 bytes": ("put", "Arrow", REALISTIC),
            "put, 1 KB": ("put", "Arrow", REALISTIC_LARGE),
            "update, 100 bytes": ("update", "Arrow", REALISTIC),
        },
    ),
)


def main(file: Path) -> None:
    """Fill the tables of all pages."""
    found = json.loads(file.read_text())["results"]
    results = {(result["group"], result["way"]): result for result in found}
    for table in TABLES:
        page = ROOT / table.page
        page.write_text(table.filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(table.page)


if __name__ == "__main__":
    main(Path(*sys.argv[1:] or ["bench-results.json"]))
