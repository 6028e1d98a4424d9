"""Metrics have the expected values, in one process and summed over the workers of a replica."""

import asyncio
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import prometheus_client
import pytest
import yaml
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from scripts.bootstrap import ROOT
from support.kinds import kind
from support.running import Service, refused, running
from support.waiting import until
from tableside.app import create_app
from tableside.settings import LimitSettings, validate
from tableside.telemetry import metrics

pytestmark = pytest.mark.server


def samples(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample by name and labels."""
    text = httpx.get(f"{url}/metrics").text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class MetricIncrease:
    """The increase of metrics since its creation. A gauge that started at zero gives its value."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._before = samples(url)

    def __call__(self, name: str, **labels: str) -> float:
        at = name, frozenset(labels.items())
        return samples(self._url).get(at, 0.0) - self._before.get(at, 0.0)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("alone")
    file = directory / "tableside.yaml"
    table: dict[str, Any] = {
        "store": "local",
        "cache": {"records_max": 10, "ttl_s": 60},
        "batch": {"operations_max": 4},
    }
    file.write_text(yaml.safe_dump({"stores": {"local": {"kind": "rocksdb", "path": "data"}}, "tables": {"t": table}}))
    with running(directory, file) as service:
        yield service


@pytest.fixture
def http(alone: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{alone.url}/v1/tables/t") as client:
        yield client


class SlowCollector(Collector):
    """A collector that takes a while, and reports how often it has been collected."""

    times = 0

    def collect(self) -> Iterator[Metric]:
        self.times += 1
        time.sleep(0.2)
        yield GaugeMetricFamily("times", "How often it was asked.", self.times)


async def test_concurrent_requests_for_metrics_do_not_block_the_service() -> None:
    slow, shown = SlowCollector(), metrics.Exposition()
    shown.registry.register(slow)  # collects it once
    slow.times = 0
    first = asyncio.create_task(shown.text_in_thread())
    while not slow.times:
        await asyncio.sleep(0)
    others = [asyncio.create_task(shown.text_in_thread()) for _ in range(50)]
    await asyncio.sleep(0)
    others[0].cancel()  # A cancelled request does not affect the others.
    assert not first.done()
    assert b"times 1.0" in await first
    assert {await other for other in others[1:]} == {await others[1]}
    assert b"times 2.0" in await others[1]
    assert slow.times == 2


def test_requests_and_their_bytes_are_counted_by_route(alone: Service, http: httpx.Client) -> None:
    since = MetricIncrease(alone.url)
    http.put("/records/marked-key", content=b'{"n": 1}')
    assert http.get("/records/marked-key").content == b'{"n":1}'
    http.get("/records/b")
    http.get("/records/a%2Fb")
    route = "/v1/tables/{table}/records/{key:path}"
    assert since("tableside_http_requests_total", route=route, method="PUT", status="204") == 1
    assert since("tableside_http_requests_total", route=route, method="GET", status="200") == 1
    assert since("tableside_http_requests_total", route=route, method="GET", status="404") == 2
    assert since("tableside_http_request_duration_seconds_count", route=route, method="GET") == 3
    assert since("tableside_http_request_bytes_total", route=route) == len(b'{"n": 1}')
    assert since("tableside_http_response_bytes_total", route=route) > 7
    http.get("/none")
    http.request("TRACE", "/records/marked-key")
    assert since("tableside_http_requests_total", route="other", method="other", status="405") == 1
    assert "marked" not in httpx.get(f"{alone.url}/metrics").text, "a key is never a label"


def test_operations_calls_and_cache_are_counted(alone: Service, http: httpx.Client) -> None:
    since = MetricIncrease(alone.url)
    operations: list[dict[str, Any]] = [{"op": "put", "key": f"c{n}", "value": {"n": n}} for n in range(6)]
    http.post("/batch", json={"operations": operations})
    gets = [{"op": "get", "key": f"c{n}"} for n in range(8)]
    http.post("/batch", json={"operations": gets})
    http.post("/batch", json={"operations": gets})
    increment = {"op": "update", "key": "d", "update": {"$inc": {"n": 1}}, "default": {"n": 0}}
    http.post("/batch", json={"operations": [increment] * 5})
    token = {"op": "put", "key": "e", "value": {}, "token": {"writer": "w", "sequence": 1}}
    http.post("/batch", json={"operations": [token]})
    http.post("/batch", json={"operations": [token]})
    http.delete("/records/e")
    http.put("/records/e", json={}, headers={"If-Match": "*"})
    http.get("/records")
    http.get("/splits")

    def operation(kind: str, outcome: str) -> float:
        return since("tableside_operations_total", table="t", operation=kind, outcome=outcome)

    assert (operation("put", "written"), operation("put", "replayed")) == (7, 1)
    assert (operation("get", "found"), operation("get", "absent")) == (12, 4)
    assert (operation("update", "created"), operation("update", "written")) == (1, 4)
    assert (operation("delete", "written"), operation("put", "precondition_failed")) == (1, 1)
    assert (operation("scan", "found"), operation("splits", "found")) == (1, 1)
    assert since("tableside_operation_duration_seconds_count", table="t", operation="delete", outcome="written") == 1
    assert since("tableside_batch_operations_count", table="t") == 6
    assert since("tableside_batch_operations_sum", table="t") == 6 + 8 + 8 + 5 + 1 + 1
    # Six puts, eight gets, then the two absent ones, in calls of at most four. Five updates are folded into one.
    assert since("tableside_store_call_operations_sum", table="t") == 6 + 8 + 2 + 1 + 2 + 2
    assert since("tableside_store_call_operations_count", table="t") == 2 + 2 + 1 + 1 + 2 + 2
    assert since("tableside_store_call_duration_seconds_count", table="t", call="apply", outcome="ok") == 9
    assert since("tableside_cache_gets_total", table="t", outcome="hit") == 6
    assert since("tableside_cache_gets_total", table="t", outcome="miss") == 8 + 2
    assert since("tableside_cache_records", table="t") == 6


PUTS = frozenset({("table", "t"), ("operation", "put"), ("outcome", "written")})


def put_40(service: Service) -> None:
    """Write 40 records, each on a new connection, so that every worker gets some."""
    for number in range(40):
        httpx.put(f"{service.url}/v1/tables/t/records/k{number}", json={"n": number})


def test_every_worker_returns_sums_that_include_ended_workers(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    used = kind("redis", request, tmp_path)
    file = tmp_path / "tableside.yaml"
    file.write_text(yaml.safe_dump({**used.configuration(), "limits": {"drain_s": 0}}))
    shared = tmp_path / "new" / "metrics"
    with running(tmp_path, file, workers=2, environment={"PROMETHEUS_MULTIPROC_DIR": str(shared)}) as service:
        put_40(service)
        until(lambda: [samples(service.url).get(("tableside_operations_total", PUTS)) for _ in range(8)] == [40] * 8)
        found = samples(service.url)
        assert found["tableside_operation_duration_seconds_count", PUTS] == 40
        assert 0 < found["tableside_operation_duration_seconds_sum", PUTS] < 40
        assert sum(1 for _ in shared.glob("counter_*.db")) == 2, "both have counted something"
        in_flight = ("tableside_in_flight", frozenset({("what", "requests")}))
        until(lambda: samples(service.url).get(in_flight) == 0)
        limit = 2 * LimitSettings().in_flight_max
        until(lambda: f"0 of {limit:,} requests" in httpx.get(f"{service.url}/console").text)
        put_40(service)
    left = CollectorRegistry()
    MultiProcessCollector(left, str(shared))  # type: ignore[no-untyped-call]  # it has no annotations
    assert left.get_sample_value("tableside_operations_total", dict(PUTS)) == 80
    assert left.get_sample_value("tableside_operation_duration_seconds_count", dict(PUTS)) == 80
    requests = {"route": "/v1/tables/{table}/records/{key:path}", "method": "PUT", "status": "204"}
    assert left.get_sample_value("tableside_http_requests_total", requests) == 80


def test_a_directory_of_metrics_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = refused(tmp_path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "file" / "metrics"))
    assert ended.returncode == 2
    [line] = ended.stderr.splitlines()
    assert line.startswith("tableside: PROMETHEUS_MULTIPROC_DIR: ")


def test_a_store_shows_its_connections_and_its_retry_budget(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    used = kind("redis", request, tmp_path)
    file = tmp_path / "tableside.yaml"
    configuration = used.configuration()
    configuration["stores"]["s"] = {**used.store, "connections_max": 7}
    file.write_text(yaml.safe_dump({**configuration, "retry_budget": {"per_s": 3}}))
    with running(tmp_path, file) as service:
        assert httpx.put(f"{service.url}/v1/tables/t/records/k", json={}).status_code == 204
        found = samples(service.url)

    def connections(state: str) -> float:
        return found["tableside_store_connections", frozenset({("store", "s"), ("state", state)})]

    assert (connections("in_use"), connections("most")) == (0, 7)
    assert 1 <= connections("open") <= 7
    budget = found["tableside_retry_budget_operations", frozenset({("store", "s")})]
    assert 3 * 10 <= budget <= 3 * 10 + 1, "the reserve of ten seconds, and the share of the requests"


def test_a_rocksdb_store_shows_its_disk(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        assert httpx.put(f"{service.url}/v1/tables/t/records/k", json={}).status_code == 204
        found = samples(service.url)
    with running(tmp_path) as service:  # it moves the records from the log to a file
        later = samples(service.url)

    def disk(state: str) -> float:
        return later["tableside_store_disk_bytes", frozenset({("store", "local"), ("state", state)})]

    [file] = (tmp_path / "tableside-data").glob("*.sst")
    assert found["tableside_store_disk_bytes", frozenset({("store", "local"), ("state", "used")})] == 0
    assert (disk("used"), disk("compaction_pending")) == (file.stat().st_size, 0)
    assert disk("size") == shutil.disk_usage(tmp_path).total > disk("free") > 0
    assert later["tableside_store_writes_delayed", frozenset({("store", "local")})] == 0


def test_every_metric_is_documented() -> None:
    documentation = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    app = create_app(validate({"stores": {"m": {"kind": "memory"}}}), file=Path("tableside.yaml"))
    made = {family.name for family in app.state.exposition.collect() if family.name.startswith("tableside_")}
    assert len(made) > 30
    assert {name for name in made if f"`{name}`" not in documentation} == set()


# The counters and histograms show the same values as those of prometheus_client

BUCKETS = (0.5, 1.0, 2.5)


@pytest.fixture
def impatient() -> Iterator[None]:
    """Make the interpreter switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def shown(registry: CollectorRegistry) -> list[str]:
    """Return all exported lines except creation times."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


def counted(
    counter: type[prometheus_client.Counter], histogram: type[prometheus_client.Histogram]
) -> Iterator[list[str]]:
    """Record a fixed sequence of values, and yield the exported lines after each step."""
    registry = CollectorRegistry()
    calls = counter("calls", "Calls.", ("kind",), registry=registry)
    sizes = histogram("sizes", "Sizes.", ("kind",), buckets=BUCKETS, registry=registry)
    yield shown(registry)
    calls.labels("a").inc()
    calls.labels("a").inc(3)
    calls.labels("b")
    yield shown(registry)
    yield shown(registry)
    for size in (0, 0.5, 0.50001, 1, 2.5, 2.6, 100):
        sizes.labels("a").observe(size)
    calls.labels("b").inc(2.5)
    yield shown(registry)
    sizes.labels("a").observe(1.5)
    sizes.labels("b").observe(7)
    yield shown(registry)


def test_values_equal_those_of_the_library() -> None:
    found = [*counted(metrics.Counter, metrics.Histogram)]
    assert found == [*counted(prometheus_client.Counter, prometheus_client.Histogram)]
    assert 'sizes_bucket{kind="a",le="0.5"} 2.0' in found[-1]
    assert 'sizes_sum{kind="a"} 108.60001' in found[-1]
    assert 'calls_total{kind="b"} 2.5' in found[-1]


@pytest.mark.usefixtures("impatient")
def test_no_count_is_lost_or_decreases_during_concurrent_reads() -> None:
    registry = CollectorRegistry()
    calls = metrics.Counter("calls", "Calls.", ("kind",), registry=registry).labels("a")
    sizes = metrics.Histogram("sizes", "Sizes.", ("kind",), buckets=BUCKETS, registry=registry).labels("a")
    over = threading.Event()
    falls: list[float] = []

    def look() -> None:
        seen = 0.0
        while not over.is_set():
            now = registry.get_sample_value("calls_total", {"kind": "a"}) or 0.0
            falls.extend([now] * (now < seen))
            seen = now

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    generator = random.Random(1)
    for _ in range(20_000):
        calls.inc()
        sizes.observe(generator.choice((0.25, 2)))
    over.set()
    for looker in lookers:
        looker.join()
    assert falls == []
    assert registry.get_sample_value("calls_total", {"kind": "a"}) == 20_000
    assert registry.get_sample_value("sizes_count", {"kind": "a"}) == 20_000
    small = registry.get_sample_value("sizes_bucket", {"kind": "a", "le": "0.5"}) or 0
    assert registry.get_sample_value("sizes_sum", {"kind": "a"}) == 0.25 * small + 2 * (20_000 - small)
