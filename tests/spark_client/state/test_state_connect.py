"""State of queries through Spark Connect."""

from pathlib import Path

import pytest

from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from spark_client.connecting import printed_by
from support.running import Service

pytestmark = [pytest.mark.daily, pytest.mark.jvm]


@pytest.mark.usefixtures("small_spark")
def test_a_server_with_the_jar_keeps_the_state_of_configured_sessions(state_service: Service, tmp_path: Path) -> None:
    ensure_jar(ensure_javac())
    job = Path(__file__).with_name("connect_job.py")
    assert "state is kept through Connect" in printed_by(job, state_service.url, tmp_path)
