"""Thousands of hostile requests do not harm a service: process, memory, records and log stay intact.

A full run has five times as many. The environment variable `TABLESIDE_SOAK_REQUESTS` sets another number of requests,
such as 100000, and `TABLESIDE_SOAK_SEED` selects other requests.
"""

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from hostile.requests import MARKER
from hostile.senders import Answers, send
from support.running import Service, running
from support.waiting import until

pytestmark = pytest.mark.server

REQUESTS = int(os.environ.get("TABLESIDE_SOAK_REQUESTS", "0"))
USUAL, FULL = 2_400, 12_000
SEED = int(os.environ.get("TABLESIDE_SOAK_SEED", "7"))

TOKEN = f"{MARKER}-good-token"
CONFIG = """
stores:
  memory: {kind: memory}
  rocks: {kind: rocksdb, path: ./data}
  shards: {kind: partitioned, partitions: [memory, rocks]}
tables:
  mem: {store: memory}
  rocks: {store: rocks}
  pages: {store: rocks, key: {book: string, page: integer}}
  spread: {store: shards}
  kept: {store: rocks}
limits: {body_bytes_max: 262144, operations_max: 200, response_bytes_max: 1048576}
logs: {level: debug, requests: 1}
"""
AUTH = f"""
auth:
  tokens: [{{name: good, sha256: {hashlib.sha256(TOKEN.encode()).hexdigest()}, read: ["*"], write: ["*"]}}]
"""

WARM_UP_SHARE = 0.25
GROWTH_BYTES_MAX = 96 * 2**20
"""The maximum growth of the process after the warm-up, for written records and memory that the allocator retains."""

KEPT = {f"k{number}": {"n": number, "s": "x" * number} for number in range(100)}

PROMISED = {501, 503, 504}
"""Expected statuses of 500 and more: an unsupported capability, overload and deadline."""


@pytest.fixture(scope="module", params=["anybody", "token"])
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A service and the token that it requires, or an empty token without authentication."""
    directory: Path = tmp_path_factory.mktemp(request.param)
    config = directory / "tableside.yaml"
    config.write_text(CONFIG + (AUTH if request.param == "token" else ""))
    with running(directory, config) as started:
        yield started, TOKEN if request.param == "token" else ""


def test_hostile_requests_do_not_harm_a_service(hostile: tuple[Service, str], full: bool) -> None:
    service, token = hostile
    process, count = psutil.Process(service.pid), (REQUESTS or (FULL if full else USUAL)) // 2
    with client_of(service, token) as client:
        for key, value in KEPT.items():
            client.put(f"/v1/tables/kept/records/{key}", json=value).raise_for_status()
        warm = int(count * WARM_UP_SHARE)
        answers = asyncio.run(send(service.url, warm, SEED, token or None))
        rss, descriptors = settled(client, process)
        check_answers(answers)
        answers = asyncio.run(send(service.url, count - warm, SEED + 1, token or None))
        after_rss, after_descriptors = settled(client, process)
        print(f"{answers.statuses}; {rss >> 20} MB after the warm-up, {after_rss >> 20} MB at the end")
        check_answers(answers)
        assert {200, 204, 400, 404, 413, 415, 422} <= set(answers.statuses), "the requests reach the expected checks"
        assert answers.statuses.total() > answers.sent / 3
        assert process.is_running()
        assert after_rss - rss < GROWTH_BYTES_MAX
        assert after_descriptors <= descriptors + 2
        for key, value in KEPT.items():
            assert client.get(f"/v1/tables/kept/records/{key}").json() == value
        assert len(client.get("/v1/tables/kept/records").json()["records"]) == len(KEPT)
        check_log(service.log, client.get("/metrics").text)


def check_answers(answers: Answers) -> None:
    assert not answers.wrong, b"\n====\n".join(answers.wrong[:5]).decode("latin-1")
    assert {status for status in answers.statuses if status >= 500} <= PROMISED


def settled(client: httpx.Client, process: psutil.Process) -> tuple[int, int]:
    """Return the size and the number of descriptors of a process when it has no requests in flight."""

    def is_idle() -> bool:
        under_way = re.findall(r'^tableside_in_flight\{what="\w+"\} (\S+)$', client.get("/metrics").text, re.MULTILINE)
        return [float(one) for one in under_way] == [0, 0, 0]

    until(is_idle)
    return process.memory_info().rss, process.num_fds()


def check_log(log: Path, metrics: str) -> None:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) > 100
    for line in lines:
        # The log shows the table's name in a path, even if it is invalid.
        assert MARKER not in json.dumps({**line, "table": None}), line
    assert MARKER not in metrics
    faults = [line for line in lines if "exception" in line or line.get("status") in (500, 502)]
    assert not faults, faults[:3]


def client_of(service: Service, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=service.url, headers=headers, timeout=60)
