"""The table of the slowest files at the end of a run."""

from collections import defaultdict

import pytest

ROWS = 25


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that took longest: seconds, seconds of these in fixtures, cases."""
    total: dict[str, float] = defaultdict(float)
    fixtures: dict[str, float] = defaultdict(float)
    cases: dict[str, set[str]] = defaultdict(set)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.split("::", 1)[0]
                total[file] += report.duration
                fixtures[file] += report.duration if report.when != "call" else 0
                cases[file].add(report.nodeid)
    if not total:
        return
    terminalreporter.section(f"{ROWS} slowest files")
    terminalreporter.write_line("seconds  in fixtures  cases  file")
    for file in sorted(total, key=total.__getitem__, reverse=True)[:ROWS]:
        terminalreporter.write_line(f"{total[file]:7.1f}  {fixtures[file]:11.1f}  {len(cases[file]):5}  {file}")
