"""The service continues the trace that is current in the client, or that the executor was started with."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

from service.telemetry.collector import Collector, Seen, collecting
from support.running import Service, running
from tableside_client import Client
from tableside_client.calls import trace_headers

pytestmark = pytest.mark.server

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def span(trace: int = 0xABC, *, sampled: bool = True) -> NonRecordingSpan:
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else 0)
    return NonRecordingSpan(
        SpanContext(trace, 0xDEF, is_remote=False, trace_flags=flags, trace_state=TraceState([("a", "b")]))
    )


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as started:
        yield started


@pytest.fixture(scope="module")
def traced(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory: Path = tmp_path_factory.mktemp("traced")
    config = directory / "tableside.yaml"
    config.write_text(
        f"stores: {{local: {{kind: memory}}}}\nauto_create: true\ntraces: {{endpoint: '{collector.url}', sample: 0}}\n"
    )
    with running(directory, config, environment={"OTEL_BSP_SCHEDULE_DELAY": "100"}) as service:
        yield service


def requests(collector: Collector, count: int) -> list[Seen]:
    """Wait for this many request spans, remove them from the collector, and return them."""

    def found() -> list[Seen]:
        return [span for span in collector.spans if span.kind == 2]

    collector.wait_for(lambda: len(found()) >= count)
    spans = found()
    collector.bodies.clear()
    return spans


def test_the_service_continues_the_trace_that_is_current_or_that_the_process_was_started_with(
    traced: Service, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(traced.url) as client, use_span(span()):
        client.table("t").put("a", {"n": 1})
        client.arrow_table("t").batch(pa.table({"key": ["a", "b"]}), op="get")
    put, batch = requests(collector, 2)
    assert (put.trace, put.parent) == (f"{0xABC:032x}", f"{0xDEF:016x}")
    assert (batch.name, batch.trace) == ("POST /v1/tables/{table}/batch", f"{0xABC:032x}")
    assert batch.attributes["tableside.operations"] == 2
    monkeypatch.setenv("TRACEPARENT", PARENT)
    with Client(traced.url) as client:
        client.tables()
    assert [seen.trace for seen in requests(collector, 1)] == [TRACE]


def test_the_current_span_takes_precedence_over_the_variable() -> None:
    environment = {"TRACEPARENT": PARENT, "TRACESTATE": "x=y"}
    assert trace_headers(environment) == {"traceparent": PARENT, "tracestate": "x=y"}
    with use_span(span(sampled=False)):
        expected = {"traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-00", "tracestate": "a=b"}
        assert trace_headers(environment) == expected


@pytest.mark.parametrize("parent", ["nonsense", PARENT + "\r\nx: y", PARENT.upper(), PARENT[:-1]])
def test_an_invalid_trace_is_not_sent(parent: str) -> None:
    assert trace_headers({"TRACEPARENT": parent, "TRACESTATE": "x=y"}) == {}
    assert trace_headers({"TRACEPARENT": PARENT, "TRACESTATE": "a=b\r\nx: y"}) == {"traceparent": PARENT}
