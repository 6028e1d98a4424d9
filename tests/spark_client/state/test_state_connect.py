"""State of queries that run through Spark Connect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from running import Service
from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac

pytestmark = pytest.mark.spark


def test_a_server_with_the_jar_keeps_the_state_of_sessions_that_say_where(
    state_service: Service, tmp_path: Path
) -> None:
    ensure_jar(ensure_javac())
    job = Path(__file__).with_name("connect_job.py")
    done = subprocess.run(
        [sys.executable, str(job), state_service.url, str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "state is kept through Connect" in done.stdout
