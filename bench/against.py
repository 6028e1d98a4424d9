"""Run benchmarks with this checkout and another one in turn: after each measurement, the other one makes the same.

Both run the benchmarks of this checkout, each with its own service, clients and dependencies.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from scripts.bootstrap import ROOT

from .cores import Cores
from .report import PerCore, Result
from .turns import PIPES

RATIO_MIN = 0.95

Results: TypeAlias = dict[tuple[str, str, str], dict[str, Any]]


def run(other: Path, arguments: Sequence[str]) -> list[Result]:
    """Run the benchmarks of these arguments, and return the rates of this checkout with ratios to the other one's.

    A ratio is the median of the rounds' ratios.
    """
    other = other.resolve()
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name) / "here.json", Path(name) / "there.json"]
        processes = _started([ROOT, other], [[*arguments, "--json", str(file)] for file in files])
        codes = [process.wait() for process in processes]
        if any(codes):
            raise RuntimeError("a benchmark failed")
        here, there = map(_read, files)
    return [_compared(result, there[key], other) for key, result in here.items() if key in there]


def _started(checkouts: Sequence[Path], arguments: Sequence[Sequence[str]]) -> list[subprocess.Popen[bytes]]:
    """Start the benchmarks of both checkouts. The first one has the first turn."""
    pipes = [os.pipe(), os.pipe()]
    os.write(pipes[0][1], b".")
    processes = []
    for index, checkout in enumerate(checkouts):
        ends = pipes[index][0], pipes[1 - index][1]
        environment = os.environ | {PIPES: "{} {}".format(*ends)}
        run = [str(checkout / "scripts" / "run"), "env", f"PYTHONPATH={ROOT / 'tests'}", "python", "-m", "bench"]
        output = subprocess.DEVNULL if index else None
        processes.append(
            subprocess.Popen([*run, *arguments[index]], cwd=ROOT, stdout=output, env=environment, pass_fds=ends)
        )
    for end in (*pipes[0], *pipes[1]):
        os.close(end)
    return processes


def _read(file: Path) -> Results:
    results = json.loads(file.read_text())["results"]
    return {(result["table"], result["group"], result["way"]): result for result in results}


def _compared(result: dict[str, Any], before: dict[str, Any], other: Path) -> Result:
    title = result["table"].partition(";")[0]
    rates = zip(result["rounds"] or [result["per_second"]], before["rounds"] or [before["per_second"]], strict=True)
    ratio = median(here / there for here, there in rates)
    table = f"{title or 'benchmarks'}; ratios are to {other}"
    core = _per_core(result, before) if result["per_core"] else None
    names = result["group"], result["way"], result["per_second"], result["unit"]
    return Result(*names, ratio, RATIO_MIN, table, core)


def _per_core(result: dict[str, Any], before: dict[str, Any]) -> PerCore:
    cores, cores_before = (Cores(**each["per_core"]["cores"]) for each in (result, before))
    own = result["per_core"]["per_second"]
    of_all = (result["per_second"] / cores.all) / (before["per_second"] / cores_before.all)
    return PerCore(own, own / before["per_core"]["per_second"], of_all, cores)
