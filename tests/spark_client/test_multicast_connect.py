"""Multicast through Spark Connect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_multicast_works_through_connect(tmp_path: Path) -> None:
    job = Path(__file__).with_name("multicast_connect_job.py")
    done = subprocess.run(
        [sys.executable, str(job), str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "multicast works through Connect" in done.stdout
