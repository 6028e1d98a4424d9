"""The same frames through Spark Connect, from the complete PySpark and from `pyspark-client`, which has no Java."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_client.connecting import connect_server, printed_by
from spark_client.deployment.environments import without_java
from spark_client.sessions import LEAN, set_environment
from support.running import running

pytestmark = [pytest.mark.daily, pytest.mark.jvm]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose Python has Tableside."""
    set_environment()
    folder = tmp_path_factory.mktemp("connect")
    settings = {**LEAN, "spark.sql.shuffle.partitions": "2"}
    with connect_server(folder, "local[2]", settings, os.environ) as address:
        yield address


@pytest.fixture(scope="module", params=[pytest.param("pyspark", marks=pytest.mark.full), "pyspark-client"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a client program."""
    if request.param == "pyspark":
        return Path(sys.executable)
    python = without_java(tmp_path_factory.mktemp("client") / "environment")
    tried = subprocess.run([python, "-c", "import pyspark, py4j"], env={}, capture_output=True, text=True)
    assert "No module named 'py4j'" in tried.stderr
    return python


def test_every_verb_and_multicast_work_through_connect(client: Path, remote: str, tmp_path: Path) -> None:
    with running(tmp_path / "service") as service:
        printed = printed_by(client, Path(__file__).with_name("connect_job.py"), service.url, tmp_path, remote)
    assert "every verb works through Connect" in printed
    assert "multicast works through Connect" in printed
