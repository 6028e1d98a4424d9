"""The proxy of an exporter of spans."""

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from servers.process import free_port
from service.telemetry.collector import collecting
from service.telemetry.lines import logged
from tableside.telemetry.span_exporter import ReportingExporter, create_provider

SPAN = ReadableSpan("request")


class Failing(SpanExporter):
    """An exporter that delivers nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.FAILURE


def test_a_collector_on_this_machine_gets_spans_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with collecting() as collector:
        provider = create_provider(f"{collector.url}/v1/traces")
        provider.get_tracer("test").start_span("request").end()
        provider.shutdown()
        assert [span.name for span in collector.spans] == ["request"]


def test_a_warning_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:hidden-password@proxy.example:3128")
    with logged() as lines:
        ReportingExporter(Failing(), "http://collector:4318/v1/traces").export([SPAN])
    [line] = lines.all
    assert line["event"].startswith("spans cannot be delivered to collector:4318, through the proxy proxy.example:3128")
    assert "hidden" not in lines.text
