"""Programs that use Spark Connect, each in a separate process: a Connect session cannot coexist with a classic one."""

import os
import subprocess
import sys
from pathlib import Path

from scripts.bootstrap import ROOT

IMPORTS = (ROOT / "tests", ROOT)
END_MAX_S = 600


def printed_by(job: Path, *arguments: object) -> str:
    """Run a program to its end, check that it succeeds, and return its output."""
    found = os.pathsep.join(filter(None, [*map(str, IMPORTS), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(job), *map(str, arguments)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=END_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout
