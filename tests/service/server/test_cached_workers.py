"""Workers with caches see each other's writes through the channel."""

import time
from pathlib import Path

import httpx
import pytest

from support.running import running
from support.waiting import WAIT_MAX_S

pytestmark = pytest.mark.server

CONFIG = """
stores: {r: {kind: redis, url: "%s"}}
tables: {cached-workers: {store: r, cache: {records_max: 100, ttl_s: 3600, channel: r}}}
"""
RECORD = "/v1/tables/cached-workers/records/a"
CONNECTIONS = 12


def test_every_worker_soon_sees_what_another_wrote(redis_url: str, tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text(CONFIG % redis_url)
    anew = httpx.Limits(max_keepalive_connections=0)  # the kernel chooses a worker for each connection
    with running(tmp_path, config, workers=2) as service, httpx.Client(base_url=service.url, limits=anew) as client:
        for number in range(3):
            assert client.put(RECORD, json={"n": number}).status_code == 204
            until, seen = time.monotonic() + WAIT_MAX_S, 0
            while seen < CONNECTIONS and time.monotonic() < until:
                seen = seen + 1 if client.get(RECORD).json() == {"n": number} else 0
            assert seen == CONNECTIONS
        hits = [line for line in client.get("/metrics").text.splitlines() if 'outcome="hit"' in line]
        assert any(line.startswith("tableside_cache_gets_total") for line in hits)
