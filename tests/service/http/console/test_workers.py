"""With several workers, each worker shows the sums over all of them."""

import re
import time
from pathlib import Path

import httpx
import pytest

from support.running import running
from support.waiting import until

pytestmark = pytest.mark.server

CONFIG = """
stores: {cache: {kind: redis, url: "%s"}}
tables: {console-workers: {store: cache}}
"""
LIVE = "/console/tables/console-workers/live"
PERIOD = re.compile(r"last ([\d.]+) s<")
GETS = 60
PAGES = 8
SHOWN_MAX_S = 12.0
ROUNDING = 0.06
"""The relative rounding error of a rate on a page."""
ROUNDING_S = 0.5
"""The rounding error of a time in whole seconds on a page."""


def sampled_twice(client: httpx.Client) -> bool:
    """Whether every worker that serves pages has sampled the metrics twice."""
    return all(PERIOD.search(client.get(LIVE).text) for _ in range(PAGES))


def shown(client: httpx.Client) -> tuple[float, float]:
    """Return bounds for the number of gets of absent records in the period that the table's page shows."""
    page = client.get(LIVE).text
    seconds = PERIOD.search(page)
    per_s = re.search(r"absent</th><td class=\"number\">([\d.]+)/s", page)
    if not seconds or not per_s:
        return 0.0, 0.0
    time_s, rate = float(seconds[1]), float(per_s[1])
    return (time_s - ROUNDING_S) * rate * (1 - ROUNDING), (time_s + ROUNDING_S) * rate * (1 + ROUNDING)


def test_a_page_shows_the_sums_over_all_workers(redis_url: str, tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text(CONFIG % redis_url)
    anew = httpx.Limits(max_keepalive_connections=0)  # the kernel chooses a worker for each connection
    with running(tmp_path, config, workers=2) as service, httpx.Client(base_url=service.url, limits=anew) as client:
        until(lambda: service.log.read_text().count("Application startup complete") == 2)  # by each worker
        until(lambda: sampled_twice(client))
        for number in range(GETS):
            assert client.get(f"/v1/tables/console-workers/records/{number}").status_code == 404
        right, end = 0, time.monotonic() + SHOWN_MAX_S
        while right < PAGES and time.monotonic() < end:
            least, most = shown(client)
            assert least <= GETS
            right = right + 1 if most >= GETS else 0  # in succession, so that every worker has served a page
            time.sleep(0.1)
        assert right == PAGES
        assert "0 of 2,048 requests" in client.get("/console/live").text  # each worker has a limit of 1,024
