"""State of queries through Spark Connect."""

import os
from pathlib import Path

import pytest

from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from spark_client.connecting import connect_server, printed_by
from spark_client.deployment.environments import without_java
from spark_client.sessions import set_environment
from spark_client.state.providers import SESSION
from support.running import Service

pytestmark = pytest.mark.jvm


def test_a_server_with_the_jar_keeps_the_state_of_configured_sessions(state_service: Service, tmp_path: Path) -> None:
    """The client's process has no Java."""
    set_environment()
    job = Path(__file__).with_name("connect_job.py")
    settings = {**SESSION, "spark.jars": str(ensure_jar(ensure_javac())), "spark.ui.enabled": "false"}
    with connect_server(tmp_path, "local[2]", settings, os.environ) as remote:
        printed = printed_by(without_java(tmp_path / "client"), job, state_service.url, tmp_path, remote)
    assert "state is kept through Connect" in printed
