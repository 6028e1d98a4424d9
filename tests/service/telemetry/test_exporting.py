"""The proxy of an exporter of spans."""

import pytest

from servers.process import free_port
from service.telemetry.collector import collecting
from tableside.telemetry.span_exporter import create_provider


def test_a_collector_on_this_machine_gets_spans_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with collecting() as collector:
        provider = create_provider(f"{collector.url}/v1/traces")
        provider.get_tracer("test").start_span("request").end()
        provider.shutdown()
        assert [span.name for span in collector.spans] == ["request"]
