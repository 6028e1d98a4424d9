"""Two replicas in separate processes that share limits."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.kinds import Kind, kind
from support.running import running

pytestmark = pytest.mark.server
PASSED = 300
"""The number of gets to measure. Clients send them as fast as the replicas respond."""


@pytest.fixture
def redis(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return kind("redis", request, tmp_path)


@pytest.fixture
def replicas(redis: Kind, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[httpx.Client]]:
    """One client for the table of each replica. The parameter of the test is the table's configuration."""
    table: dict[str, Any] = request.param
    configuration = redis.configuration(**table)
    with ExitStack() as stack:
        clients = []
        for name in ("one", "two"):
            file = tmp_path / f"{name}.yaml"
            file.write_text(yaml.safe_dump(configuration))
            service = stack.enter_context(running(tmp_path / name, file))
            clients.append(stack.enter_context(httpx.Client(base_url=f"{service.url}/v1/tables/t")))
        yield clients


LIMITED = {"limiter": "s", "read": {"rate_per_s": 100, "burst": 50}, "deadline_s": 0.2}


@pytest.mark.parametrize("replicas", [LIMITED], indirect=True)
def test_replicas_share_one_rate_limit(replicas: list[httpx.Client]) -> None:
    """100 gets pass each second after a burst of 50. Separate limits would pass twice that."""
    for client in replicas:
        assert client.get("/records/a").status_code == 404
    statuses, passed = set[int](), list[int]()
    began = time.monotonic()

    def ask(client: httpx.Client, number: int) -> None:
        """Use a key of its own: gets of one key that arrive together share one get, and its credits."""
        with httpx.Client(base_url=client.base_url) as own:
            while len(passed) < PASSED and time.monotonic() < began + 30:
                status = own.get(f"/records/{number}").status_code
                statuses.add(status)
                if status == 404:
                    passed.append(status)

    threads = [threading.Thread(target=ask, args=(client, number)) for client in replicas for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - began
    assert statuses <= {404, 429, 504}, "504 is a credit that came too late"
    assert PASSED <= len(passed) <= 1.3 * (100 * took_s + 50)
