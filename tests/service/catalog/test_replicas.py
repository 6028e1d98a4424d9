"""Two replicas in separate processes that share limits."""

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


LIMITED = {"limiter": "s", "read": {"rate_per_s": 0.001, "burst": 3}, "deadline_s": 0.2}


@pytest.mark.parametrize("replicas", [LIMITED], indirect=True)
def test_replicas_share_one_rate_limit(replicas: list[httpx.Client]) -> None:
    """Three gets pass. Separate limits would pass three in each replica."""
    statuses = [client.get("/records/a").status_code for client in replicas for _ in range(2)]
    assert statuses == [404, 404, 404, 429]
