"""A standalone Spark cluster of processes: a master, workers and their executors, from PySpark's own jars."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyspark

from servers.process import free_port
from spark_client.quick_start import QUICK_START, ensure_archive

HOST = "127.0.0.1"
START_S = 300.0
STOP_S = 30.0

# No REST server: its port would be 6066.
DAEMONS = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {QUICK_START}",
}

SPARK_HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its address, and the folder with all logs."""

    url: str
    folder: Path


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Cluster]:
    """Run a master and workers of one core each. They end with the block."""
    ensure_archive()
    port, *ui = (free_port() for _ in range(workers + 2))
    url = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        place = ("--port", str(port), "--webui-port", str(ui[0]))
        stack.enter_context(_process(folder, "master", "master.Master", *place))
        page(f"http://{HOST}:{ui[0]}/json/")
        for number, at in enumerate(ui[1:]):
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            arguments += ["--webui-port", str(at), url]
            stack.enter_context(_process(folder, f"worker-{number}", "worker.Worker", *arguments))
        until = time.monotonic() + START_S
        while page(f"http://{HOST}:{ui[0]}/json/").count('"ALIVE"') < workers + 1:  # the master is also alive
            assert time.monotonic() < until, "the workers did not come to the master"
            time.sleep(0.1)
        yield Cluster(url, folder)


def page(url: str) -> str:
    """Wait until a page of Spark is available, and return it."""
    until = time.monotonic() + START_S
    while True:
        try:
            return httpx.get(url, timeout=30, follow_redirects=True, trust_env=False).raise_for_status().text
        except httpx.HTTPError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextmanager
def _process(folder: Path, name: str, what: str, *arguments: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("ab") as output:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{what}", "--host", HOST, *arguments],
            cwd=folder,
            env=clean_environment() | {"SPARK_LOCAL_IP": HOST, **DAEMONS},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def clean_environment() -> dict[str, str]:
    """Return the environment without the variables that lead Spark or Python to the packages of this one."""
    ours = ("PYSPARK", "PYTHON", "SPARK", "TABLESIDE", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
