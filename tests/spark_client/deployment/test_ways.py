"""Deployment of the client to executors whose Python lacks it, in the ways of docs/spark-deployment.md."""

import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from documentation.blocks import blocks
from spark_client.connecting import connect_server, printed_by
from spark_client.deployment import environments
from spark_client.deployment.standalone import HOST, SPARK_HOME, Cluster, clean_environment, standalone
from spark_client.quick_start import QUICK_START
from support.running import Service

pytestmark = [pytest.mark.daily, pytest.mark.jvm, pytest.mark.xdist_group("deployment")]

JOB = Path(__file__).with_name("way_job.py")
QUICK = {
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Iterator[Cluster]:
    """A master and one worker, two in a full run."""
    with standalone(tmp_path_factory.mktemp("cluster"), workers=2 if full else 1) as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ways")


@pytest.fixture(scope="module")
def lacking(folder: Path) -> Path:
    python = environments.lacking(folder / "lacking")
    tried = subprocess.run([python, "-c", "import pandas, pyarrow, tableside_spark"], capture_output=True, text=True)
    assert "No module named 'tableside_spark'" in tried.stderr
    return python


@pytest.fixture(scope="module")
def packages(folder: Path) -> Path:
    return environments.packages(folder / "packages")


@pytest.fixture(scope="module")
def archive(folder: Path, full: bool) -> Path:
    return environments.archive(folder / "environment", whole=full)


def test_a_zip_file_with_dependencies_is_sufficient_and_a_wheel_is_not(
    cluster: Cluster, service: Service, folder: Path, lacking: Path, packages: Path
) -> None:
    alone = environments.wheel(folder / "alone")
    wheel = shutil.copy(alone, folder / "tableside-1-py3-none-any.whl")
    token = secrets.token_urlsafe(30)
    job = [service.url, token, "ways_zip", str(alone), str(packages)]
    printed = submitted(cluster, str(lacking), ["--py-files", str(wheel)], job)
    assert failures(printed) == [
        "ModuleNotFoundError: No module named 'tableside_spark'",
        "ModuleNotFoundError: No module named 'httpx'",
    ]
    assert works(printed, ".zip/tableside_spark/")
    logs = [*cluster.folder.glob("*.log"), *cluster.folder.rglob("stderr")]
    assert len(logs) > 2
    assert leaking(logs, token) == []


def test_a_packed_environment_has_everything(cluster: Cluster, service: Service, archive: Path) -> None:
    job = [service.url, secrets.token_urlsafe(30), "ways_archive"]
    options = ["--archives", f"{archive}#environment"]
    printed = submitted(cluster, "./environment/bin/python", options, job)
    assert failures(printed) == []
    assert works(printed, str(cluster.folder / "work-"), "/environment/lib/")


def test_a_spark_connect_session_adds_the_client(
    cluster: Cluster, service: Service, folder: Path, lacking: Path, packages: Path, archive: Path
) -> None:
    """The token is an argument here, and no output of the server contains it. The page explains this.

    The client programs use `pyspark-client`, and find no Java.
    """
    token = secrets.token_urlsafe(30)
    python = environments.without_java(folder / "without-java")
    (folder / "events").mkdir()
    event_log = {
        "spark.driver.host": HOST,
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.enabled": "true",
    }
    environment = clean_environment() | {"PYSPARK_PYTHON": str(lacking)}
    with connect_server(folder, cluster.url, {**QUICK, **event_log}, environment) as remote:
        printed = printed_by(python, JOB, "connect", service.url, token, "ways_connect", remote, archive, packages)
        assert works(printed, "/environment/lib/"), printed
        # The server's own Python plans the format, and it does not see the archive.
        assert failures(printed) == ["ModuleNotFoundError: No module named 'tableside_spark'"]
        assert printed_by(python, program_of_the_page(folder, remote, service.url, packages)) == "100 7\n"
    logs = [folder / "connect.log", *(folder / "events").rglob("events_*")]
    assert len(logs) > 1
    assert any(b"MapInArrow" in log.read_bytes() for log in logs)
    assert leaking(logs, token) == []


def program_of_the_page(folder: Path, remote: str, url: str, packages: Path) -> Path:
    """Write the program of docs/spark-deployment.md to a file, with these addresses."""
    [block] = [block for block in blocks("docs/spark-deployment.md") if ".remote(" in block.text]
    addresses = {"sc://spark.example:15002": remote, "http://tables.example:8080": url}
    text = re.sub("|".join(addresses), lambda found: addresses[found[0]], block.text)
    program = folder / "page" / "program.py"
    program.parent.mkdir()
    shutil.copy(packages, program.with_name("tableside-packages.zip"))
    program.write_text(text)
    return program


def leaking(files: Iterable[Path], secret: str) -> list[Path]:
    """Return the files that contain a piece of a secret, also in hexadecimal digits."""
    pieces = {text[start : start + 12] for text in (secret, secret.encode().hex()) for start in range(len(text) - 11)}
    any_piece = re.compile("|".join(map(re.escape, pieces)).encode())
    return [file for file in files if any_piece.search(file.read_bytes())]


def submitted(cluster: Cluster, python: str, options: list[str], job: list[str]) -> str:
    """Run a job with `spark-submit` and this Python on executors, and return its output. The driver has the client."""
    settings = {"spark.driver.host": HOST, **QUICK}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url]
    command += [*(f"--conf={name}={value}" for name, value in settings.items()), *options, str(JOB), "classic", *job]
    pythons = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": str(SPARK_HOME)}
    environment = clean_environment() | pythons
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr[-6000:]
    return run.stdout


def failures(printed: str) -> list[str]:
    return [line.removeprefix("FAILED: ") for line in printed.splitlines() if line.startswith("FAILED: ")]


def works(printed: str, *place: str) -> bool:
    """Return whether everything was written, found and read with the client from that location."""
    lines = dict(line.split(": ", 1) for line in printed.splitlines() if ": " in line)
    found = (lines.get("applied"), lines.get("sum"), lines.get("format"))
    return found == ("100", "4950", "100") and all(part in lines["executors"] for part in place)
