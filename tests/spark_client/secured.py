"""A service that speaks TLS on its port."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from running import _wait_until_ready, free_port
from spark_client.certificates import Pair


@contextmanager
def secured(folder: Path, pair: Pair, clients_of: Path | None = None, config: Path | None = None) -> Iterator[str]:
    """Run `tableside serve` with a certificate; with `clients_of`, it asks for one of that authority. Its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port, probes = free_port(), free_port()
    command = [sys.executable, "-m", "tableside", "serve", "--port", str(port), "--probes-port", str(probes)]
    command += ["--ssl-certfile", str(pair.certificate), "--ssl-keyfile", str(pair.key)]
    command += [] if clients_of is None else ["--ssl-ca-certs", str(clients_of)]
    command += [] if config is None else ["--config", str(config)]
    log = folder / "service.log"
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _wait_until_ready(f"http://127.0.0.1:{probes}/readyz", process, log)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
