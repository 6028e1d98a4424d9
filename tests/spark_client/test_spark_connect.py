"""The same frames through Spark Connect."""

from pathlib import Path

import pytest

from servers.process import free_port
from spark_client.connecting import printed_by
from support.running import Service

pytestmark = [pytest.mark.daily, pytest.mark.jvm]


@pytest.fixture(scope="module")
def printed(service: Service, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of the program that uses Connect, which has to succeed."""
    job = Path(__file__).with_name("connect_job.py")
    return printed_by(job, service.url, tmp_path_factory.mktemp("connect"), free_port())


def test_every_verb_works_through_connect(printed: str) -> None:
    assert "every verb works through Connect" in printed


def test_multicast_works_through_connect(printed: str) -> None:
    assert "multicast works through Connect" in printed
