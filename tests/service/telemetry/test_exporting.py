"""Failures of a collector are logged at intervals, and once more when it works again."""

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from servers.process import free_port
from service.telemetry.collector import collecting
from service.telemetry.lines import logged
from tableside.telemetry.span_exporter import WARNING_INTERVAL_S, ReportingExporter, create_provider

SPAN = ReadableSpan("request")


class Exporter(SpanExporter):
    """An exporter with a scripted outcome."""

    def __init__(self) -> None:
        self.outcome: SpanExportResult | Exception = SpanExportResult.SUCCESS

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize("failure", [SpanExportResult.FAILURE, ConnectionError("marked-password")])
def test_failures_are_logged_first_at_intervals_and_at_the_end(
    failure: SpanExportResult | Exception,
) -> None:
    exporter, clock = Exporter(), [0.0]
    delivery = ReportingExporter(exporter, "https://user:marked-password@collector:4318/v1/traces", lambda: clock[0])
    with logged() as lines:
        assert delivery.export([SPAN]) is SpanExportResult.SUCCESS
        exporter.outcome = failure
        for _ in range(100):
            assert delivery.export([SPAN, SPAN]) is SpanExportResult.FAILURE
        clock[0] = WARNING_INTERVAL_S
        delivery.export([SPAN])
        exporter.outcome = SpanExportResult.SUCCESS
        for _ in range(3):
            delivery.export([SPAN])
        exporter.outcome = failure
        delivery.export([SPAN])
    told = [(line["level"], line["event"], line["lost"]) for line in lines.all]
    where = "collector:4318"
    assert told == [
        ("warning", f"spans cannot be delivered to {where}", 2),
        ("warning", f"spans cannot be delivered to {where}", 201),
        ("info", f"spans are delivered to {where} again", 201),
        ("warning", f"spans cannot be delivered to {where}", 1),
    ]
    assert "marked" not in lines.text


def test_a_collector_on_this_machine_gets_spans_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with collecting() as collector:
        provider = create_provider(f"{collector.url}/v1/traces")
        provider.get_tracer("test").start_span("request").end()
        provider.shutdown()
        assert [span.name for span in collector.spans] == ["request"]


def test_a_warning_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:hidden-password@proxy.example:3128")
    exporter = Exporter()
    exporter.outcome = SpanExportResult.FAILURE
    with logged() as lines:
        ReportingExporter(exporter, "http://collector:4318/v1/traces").export([SPAN])
    [line] = lines.all
    assert line["event"].startswith("spans cannot be delivered to collector:4318, through the proxy proxy.example:3128")
    assert "hidden" not in lines.text
