"""The same frames through Spark Connect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from running import Service

pytestmark = pytest.mark.spark


def test_every_verb_works_through_connect(service: Service, tmp_path: Path) -> None:
    job = Path(__file__).with_name("connect_job.py")
    done = subprocess.run(
        [sys.executable, str(job), service.url, str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "every verb works through Connect" in done.stdout
