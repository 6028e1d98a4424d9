"""The counters and histograms always show the same values as those of prometheus_client."""

import random
import sys
import threading
from collections.abc import Iterator

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tableside.telemetry import metrics

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
