"""promtool, the rule and PromQL checker of Prometheus, from Debian's package. The server is not started."""

import subprocess
from pathlib import Path

from .install import ensure_command

RUN_MAX_S = 60.0


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it and return its output, including errors."""
    command = [str(ensure_command("promtool", "prometheus")), *map(str, arguments)]
    return subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_MAX_S
    )
