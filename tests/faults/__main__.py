"""Run tests against faults: `scripts/run python -m tests.faults [NAME ...]`. See README.md in this folder.

The tests run in a copy of the committed tree in one place outside the checkout, with the packages of its `.venv`.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from .patches import HERE, ROOT, Fault, faults

RESULTS = HERE / "results.tsv"
COLUMNS = "fault\tresult\tfirst failing case\ttests"
COPY = Path(tempfile.gettempdir()) / f"tableside-faults-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}"
PACKAGES = ("service", "spark_client", "tests", ".")
RUN_MAX_S = 600.0
RESULT = {0: "missed", 1: "caught"}
CHECK = "import sys, tableside, tableside_spark; print(tableside.__file__, tableside_spark.__file__, sys.prefix)"


def main() -> int:
    """Return 0 if every fault was caught, 1 if some were missed, 2 if a run ended with an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Show that tests catch known faults.")
    parser.add_argument("names", nargs="*", help="area/number-words or a beginning of it; all faults if none is given")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a fault first")
    given = parser.parse_args()
    every = faults()
    if unknown := [name for name in given.names if not any(fault.name.startswith(name) for fault in every)]:
        parser.error(f"no fault has a name that begins with {', '.join(unknown)}")
    chosen = [fault for fault in every if not given.names or fault.name.startswith(tuple(given.names))]
    began = time.monotonic()
    with COPY.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent runs would apply their patches to the same copy
        make_copy()
        if not given.unchecked and not passes_without_fault(chosen):
            return 2
        found = [run(fault) for fault in chosen]
    print(f"{len(found)} faults in {time.monotonic() - began:.0f} s")
    return max((0 if result == "caught" else 1 if result == "missed" else 2 for result in found), default=0)


def make_copy() -> None:
    """Update the copy to the last commit. Its `.venv` links to the checkout's, except for separate servers."""
    if not (COPY / ".git").exists():
        _git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(COPY)).check_returncode()
    for arguments in (("fetch", "--quiet", str(ROOT), "HEAD"), ("reset", "--quiet", "--hard", "FETCH_HEAD")):
        _git(COPY, *arguments).check_returncode()
    _git(COPY, "clean", "--quiet", "--force", "-d").check_returncode()
    (COPY / ".venv" / "servers").mkdir(parents=True, exist_ok=True)
    for entry in (ROOT / ".venv").iterdir():
        link = COPY / ".venv" / entry.name
        if not link.is_symlink() and not link.exists():
            link.symlink_to(entry)
    places = _run([_python(), "-c", CHECK], cwd=Path(tempfile.gettempdir())).stdout.split()
    if len(places) != 3 or not all(place.startswith(f"{COPY}/") for place in places):
        raise SystemExit(f"modules do not come from {COPY}: {places}")


def passes_without_fault(chosen: Sequence[Fault]) -> bool:
    """Run all tests of the chosen faults without a fault, and print failures."""
    tests = dict.fromkeys(test for fault in chosen for test in fault.tests)
    began = time.monotonic()
    done = pytest(list(tests))
    if done.returncode:
        print(done.stdout[-20_000:], f"the tests fail without a fault ({done.returncode})", sep="\n")
    else:
        print(f"the tests pass without a fault: {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode == 0


def run(fault: Fault) -> str:
    """Run the tests of a fault in the copy with the patch. Record and return the result."""
    began = time.monotonic()
    _git(COPY, "apply", str(fault.file)).check_returncode()
    try:
        done = pytest(["-x", *fault.tests])
    finally:
        _git(COPY, "apply", "--reverse", str(fault.file)).check_returncode()
    result = RESULT.get(done.returncode, "error")
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    failing = lines[0].partition(" ")[2].partition(" - ")[0] if lines else ""
    print(f"{result:7} {time.monotonic() - began:6.1f} s  {fault.name}  {failing}", flush=True)
    if result == "error":
        print(done.stdout[-4_000:], done.stderr[-4_000:], sep="\n")
    else:
        note(fault, result, failing)
    return result


def pytest(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in the copy, without the examples that hypothesis saved in earlier runs."""
    shutil.rmtree(COPY / ".hypothesis", ignore_errors=True)
    return _run([_python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments], cwd=COPY)


def note(fault: Fault, result: str, failing: str) -> None:
    """Write the result into the table, and replace the previous one."""
    lines = RESULTS.read_text().splitlines()[1:] if RESULTS.exists() else []
    rows = {line.partition("\t")[0]: line for line in lines}
    rows[fault.name] = "\t".join((fault.name, result, failing, " ".join(fault.tests)))
    kept = [rows[each.name] for each in faults() if each.name in rows]
    RESULTS.write_text("\n".join([COLUMNS, *kept, ""]))


def _python() -> str:
    return str(COPY / ".venv" / "bin" / "python")


def _git(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=tree, capture_output=True, text=True, check=False)


def _run(command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command so that it and its child processes import the copy's modules."""
    environment = {name: value.replace(f"{ROOT}/", f"{COPY}/") for name, value in os.environ.items()}
    environment["PYTHONPATH"] = os.pathsep.join(str(COPY / place) for place in PACKAGES)
    # Compiled modules have the time of their source in seconds, and a run may take less than one.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=RUN_MAX_S
        )
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, -1, str(late.stdout), f"no end within {RUN_MAX_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
