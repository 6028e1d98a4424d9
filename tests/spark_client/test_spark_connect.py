"""The same frames through Spark Connect."""

from pathlib import Path

import pytest

from running import Service
from spark_client.connecting import printed_by

pytestmark = pytest.mark.jvm


def test_every_verb_works_through_connect(service: Service, tmp_path: Path) -> None:
    job = Path(__file__).with_name("connect_job.py")
    assert "every verb works through Connect" in printed_by(job, service.url, tmp_path)
