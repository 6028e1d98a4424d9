"""Programs that use Spark Connect, each in a separate process: a Connect session cannot coexist with a classic one."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from scripts.bootstrap import ROOT

IMPORTS = (ROOT / "tests", ROOT)
END_MAX_S = 600


def printed_by(job: Path, *arguments: object) -> str:
    """Run a program to its end, check that it succeeds, and return its output.

    A program that takes too long fails with the stack of every thread.
    """
    found = os.pathsep.join(filter(None, [*map(str, IMPORTS), os.environ.get("PYTHONPATH")]))
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        program = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(job), *map(str, arguments)],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": found},
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = program.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGABRT)
            code = program.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)  # the server of the session
        output.seek(0)
        errors.seek(0)
        assert code == 0, errors.read()[-6000:]
        return output.read()
