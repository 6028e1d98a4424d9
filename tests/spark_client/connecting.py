"""A server of Spark Connect, and programs that use it, each in a separate process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from servers.process import HOST, free_port
from spark_client.deployment.standalone import SPARK_HOME

START_MAX_S = 300
STOP_MAX_S = 30
END_MAX_S = 600


@contextmanager
def connect_server(
    folder: Path, master: str, settings: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[str]:
    """Run a Spark Connect server, with its log in `folder`, and yield its address."""
    port, log = free_port(), folder / "connect.log"
    place = {"spark.connect.grpc.binding.address": HOST, "spark.connect.grpc.binding.port": str(port)}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [f"--conf={name}={value}" for name, value in {**settings, **place}.items()]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=folder, env={**environment, "SPARK_HOME": str(SPARK_HOME)}, stdout=output, stderr=output
        )
    try:
        until = time.monotonic() + START_MAX_S
        while b"Spark Connect server started" not in log.read_bytes():
            running = server.poll() is None and time.monotonic() < until
            assert running, log.read_text()[-4000:]
            time.sleep(0.2)
        yield f"sc://{HOST}:{port}"
    finally:
        server.terminate()
        try:
            server.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def printed_by(python: Path, job: Path, *arguments: object) -> str:
    """Run a client program to its end without a Java on its PATH, check that it succeeds, and return its output."""
    environment = {"PATH": str(python.parent)}
    if python == Path(sys.executable):  # it may use an older PySpark
        environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    command = [str(python), str(job), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=job.parent, env=environment, capture_output=True, text=True, timeout=END_MAX_S, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout
