"""Measure small requests with the load generator wrk and a Lua script."""

import re
import subprocess
import tempfile

from servers.install import ensure_command


def requests_per_second(url: str, script: str, *, connections: int, seconds: float) -> float:
    """Return the number of responses per second from wrk. Raise if any status is not 2xx."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        duration = f"{max(1, round(seconds))}s"
        command = [str(ensure_command("wrk", "wrk")), "-t1", f"-c{connections}", f"-d{duration}", "-s", file.name, url]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in printed or (rate := re.search(r"Requests/sec:\s+([0-9.]+)", printed)) is None:
        raise RuntimeError(f"wrk saw failures:\n{printed}")
    return float(rate[1])
