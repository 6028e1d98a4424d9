"""Multicast through Spark Connect."""

from pathlib import Path

import pytest

from spark_client.connecting import printed_by

pytestmark = pytest.mark.jvm


def test_multicast_works_through_connect(tmp_path: Path) -> None:
    job = Path(__file__).with_name("multicast_connect_job.py")
    assert "multicast works through Connect" in printed_by(job, tmp_path)
