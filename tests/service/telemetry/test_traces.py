"""The spans that a real service exports, and that a collector that is down or hangs does no harm."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from servers.process import free_port
from service.telemetry.collector import Collector, Seen, collecting
from support.raw_http import Connection
from support.running import Service, running
from support.waiting import until
from tableside import __version__
from tableside.core.errors import InvalidOperation, Unsupported
from tableside.telemetry import TraceSettings, traces
from tableside.telemetry.span_exporter import create_provider

pytestmark = pytest.mark.server
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{CALLER}-{flag}" for flag in ("01", "00"))
RECORDS = "/v1/tables/{table}/records/{key:path}"
SERVER, CLIENT = 2, 3
ERROR = 2
URL = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100"}

CONFIG = """
stores:
  cache: {kind: redis, url: "%s"}
  away: {kind: redis, url: "redis://127.0.0.1:1"}
tables:
  plain: {store: cache}
  narrow: {store: cache, concurrency_max: 1}
  shared: {store: cache}
  away: {store: away, deadline_s: 1}
traces: {endpoint: "%s", sample: %s}
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as started:
        yield started


@pytest.fixture(scope="module")
def traced(collector: Collector, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that starts no traces, and continues those of its callers."""
    directory = tmp_path_factory.mktemp("traced")
    with running(directory, configured(directory, redis_url, collector.url), environment=QUICK) as service:
        yield service


@pytest.fixture(autouse=True)
def empty_collector(collector: Collector) -> None:
    collector.bodies.clear()


def configured(directory: Path, redis_url: str, endpoint: str, sample: float = 0) -> Path:
    directory.mkdir(exist_ok=True)
    config = directory / "tableside.yaml"
    config.write_text(CONFIG % (redis_url, endpoint, sample))
    return config


def child(spans: list[Seen], parent: Seen, name: str) -> Seen:
    [span] = (span for span in spans if span.parent == parent.id and span.name == name)
    assert span.trace == parent.trace
    assert parent.began <= span.began <= span.ended
    return span


def test_a_request_is_a_span_that_continues_its_callers_trace(traced: Service, collector: Collector) -> None:
    url = httpx.URL(traced.url)
    with httpx.Client(base_url=traced.url, headers={"traceparent": SAMPLED, "tracestate": "a=b"}) as client:
        client.put("/v1/tables/plain/records/a", json={"n": 1})
    collector.wait_for(lambda: len(collector.spans) == 4)
    [request] = collector.named(f"PUT {RECORDS}")
    assert (request.trace, request.parent, request.kind) == (TRACE, CALLER, SERVER)
    assert request.attributes == {
        "http.request.method": "PUT",
        "http.route": RECORDS,
        "http.response.status_code": 204,
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "server.address": url.host,
        "server.port": url.port,
        "tableside.table": "plain",
        "tableside.operations": 1,
        "tableside.failed": 0,
    }
    wait = child(collector.spans, request, "coalesce wait")
    call = child(collector.spans, child(collector.spans, wait, "shared call"), "store call")
    assert call.kind == CLIENT
    assert call.attributes == {
        "db.system.name": "redis",
        "db.collection.name": "plain",
        "db.operation.batch.size": 1,
    }
    assert call.ended <= request.ended
    assert request.resource["service.name"] == "tableside"
    assert request.resource["service.version"] == __version__


def test_spans_of_rejected_and_failed_requests_have_a_status(traced: Service, collector: Collector) -> None:
    with httpx.Client(base_url=traced.url, headers={"traceparent": SAMPLED}, timeout=30) as client:
        assert client.get("/v1/tables/plain/records/none").status_code == 404
        assert client.get("/no/such/path").status_code == 404
        failed = client.get("/v1/tables/away/records/none").status_code
    assert failed == 503
    collector.wait_for(lambda: sum(span.kind == SERVER for span in collector.spans) == 3)
    statuses = {
        (span.name, span.attributes["http.response.status_code"], span.attributes["error.type"], span.status)
        for span in collector.spans
        if span.kind == SERVER
    }
    assert statuses == {
        (f"GET {RECORDS}", 404, "record_not_found", 0),
        ("GET", 404, "not_found", 0),
        (f"GET {RECORDS}", 503, "store_unavailable", ERROR),
    }


INVALID = ("", "nonsense", SAMPLED[:-1], SAMPLED.upper())


def test_unsampled_callers_probes_and_requests_without_a_trace_have_no_span(
    traced: Service, collector: Collector
) -> None:
    with httpx.Client(base_url=traced.url) as client:
        for parent in (UNSAMPLED, *INVALID):
            client.get("/v1/tables/plain/records/a", headers={"traceparent": parent})
        client.get("/v1/tables/plain/records/a")
        for probe in ("/livez", "/readyz", "/metrics"):
            assert client.get(probe, headers={"traceparent": SAMPLED}).status_code == 200
        client.get("/v1/tables", headers={"traceparent": SAMPLED})
    collector.wait_for(lambda: bool(collector.spans))
    assert [(span.name, span.parent, span.trace) for span in collector.spans] == [("GET /v1/tables", CALLER, TRACE)]


async def test_a_pipelined_request_is_not_part_of_the_trace_before_it(traced: Service, collector: Collector) -> None:
    connection = await Connection.open(traced.url)
    connection.send("GET", "/v1/tables", traceparent=SAMPLED, tracestate="\xff,,==")
    connection.send("MARKED", "/marked")
    connection.send("GET", "/v1/tables", traceparent=SAMPLED.replace("b7", "c8"), tracestate="a=b")
    connection.send("MARKED", "/marked", traceparent=SAMPLED)
    for status in (200, 404, 200, 404):
        assert (await connection.answer()).status == status
    connection.abort()
    await asyncio.to_thread(collector.wait_for, lambda: len(collector.spans) == 3)
    assert {(span.name, span.parent, span.trace) for span in collector.spans} == {
        ("GET /v1/tables", CALLER, TRACE),
        ("GET /v1/tables", CALLER.replace("b7", "c8"), TRACE),
        ("HTTP", CALLER, TRACE),
    }


def test_no_key_value_or_secret_is_in_a_span(traced: Service, collector: Collector) -> None:
    headers = {"traceparent": SAMPLED, "authorization": "Bearer marked-token", "tableside-token": "marked-writer/1"}
    with httpx.Client(base_url=traced.url, headers=headers, timeout=30) as client:
        for table in ("plain", "narrow", "shared", "away"):
            path = f"/v1/tables/{table}/records/marked-key"
            client.put(path, json={"marked-member": "marked-value"})
            client.patch(path, json={"update": {"$inc": {"marked-member": 1}}})
            client.get(path, headers={"if-none-match": '"marked-etag"'}, params={"fields": "marked-member"})
            client.put(path, json={}, headers={"if-match": '"marked-etag"'})
            client.get(f"/v1/tables/{table}/records", params={"prefix": "marked-key"})
            get = {"op": "get", "key": "marked-key"}
            put = {"op": "put", "key": "marked-key", "value": {"marked": 1}, "if_match": "marked-etag"}
            client.post(f"/v1/tables/{table}/batch", json={"operations": [get, put]})
            client.delete(path)
        client.request("PROPFIND", "/marked-path?marked-query")
    collector.wait_for(lambda: sum(span.kind == SERVER for span in collector.spans) == 29)
    assert not [body for body in collector.bodies if b"marked" in body.lower()]


def test_the_standard_variables_set_endpoint_headers_and_service_name(tmp_path: Path, collector: Collector) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=tables",
        "OTEL_SERVICE_NAME": "lookups",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.name=not-this",
    }
    with running(tmp_path, environment=environment) as service:
        httpx.get(f"{service.url}/v1/tables", headers={"traceparent": SAMPLED})
    # The shutdown exported it, since the export interval is five seconds.
    [span] = collector.spans
    assert span.resource["service.name"] == "lookups"
    assert span.resource["deployment.environment.name"] == "test"
    assert span.resource["service.version"] == __version__
    assert (collector.paths[-1], collector.headers[-1]["x-team"]) == ("/v1/traces", "tables")


def test_each_worker_exports_its_spans(tmp_path: Path, collector: Collector, redis_url: str) -> None:
    config = configured(tmp_path, redis_url, collector.url, sample=1)
    with running(tmp_path, config, workers=2) as service:
        for _ in range(40):
            httpx.get(f"{service.url}/v1/tables")
    assert len(collector.named("GET /v1/tables")) == 40
    assert len({span.trace for span in collector.spans}) == 40


def test_without_an_endpoint_nothing_is_sent_and_only_pandas_is_imported_at_start(
    tmp_path: Path, collector: Collector
) -> None:
    program = """
import asyncio, sys
from tableside.app import create_app
from tableside.settings import validate
app = create_app(validate({"stores": {"local": {"kind": "memory"}}}))
async def main():
    async with app.router.lifespan_context(app):
        print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
        print("pandas" in sys.modules)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"[]\n{find_spec('pandas') is not None}\n"
    with running(tmp_path, environment={"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}) as service:
        httpx.get(f"{service.url}/v1/tables", headers={"traceparent": SAMPLED})
    assert collector.bodies == []


def lines(service: Service) -> list[dict[str, object]]:
    return [json.loads(line) for line in service.log.read_text().splitlines()]


def test_an_unreachable_collector_causes_no_delay_and_is_logged(tmp_path: Path, redis_url: str) -> None:
    url = f"http://user:marked-password@127.0.0.1:{free_port()}"
    config = configured(tmp_path, redis_url, url, sample=1)
    sizes = {"OTEL_BSP_MAX_QUEUE_SIZE": "128", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "128"}
    quick = {**QUICK, **sizes, "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2"}
    with ExitStack() as stack:
        service = stack.enter_context(running(tmp_path, config, environment=quick))
        client = stack.enter_context(httpx.Client(base_url=service.url))
        for _ in range(200):
            client.get("/v1/tables")
        until(lambda: any(str(line["logger"]).startswith("opentelemetry") for line in lines(service)))
        for _ in range(100):
            client.get("/v1/tables")
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert "marked-password" not in service.log.read_text()


def test_a_collector_on_this_machine_gets_spans_without_the_proxy(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    provider = create_provider(f"{collector.url}/v1/traces")
    provider.get_tracer("test").start_span("request").end()
    provider.shutdown()
    assert [span.name for span in collector.spans] == ["request"]


def test_a_hung_collector_delays_neither_requests_nor_the_shutdown(tmp_path: Path, redis_url: str) -> None:
    with collecting() as hanging, ExitStack() as stack:
        hanging.answering.clear()
        config = configured(tmp_path, redis_url, hanging.url, sample=1)
        service = stack.enter_context(running(tmp_path, config, environment=QUICK))
        client = stack.enter_context(httpx.Client(base_url=service.url, timeout=5))
        for _ in range(100):
            assert client.get("/v1/tables").status_code == 200
        began = time.monotonic()
        stack.close()
        assert 2 <= time.monotonic() - began < 10
    assert "spans that were not delivered within 2 s are lost" in [line["event"] for line in lines(service)]


@pytest.mark.parametrize(
    ("file", "variables", "expected"),
    [
        (None, {"ENDPOINT": ""}, None),
        ("http://a:4318", {}, "http://a:4318/v1/traces"),
        ("http://a/v1/traces", {}, "http://a/v1/traces"),
        (None, {"ENDPOINT": "http://b:4318/"}, "http://b:4318/v1/traces"),
        (None, {"TRACES_ENDPOINT": "http://c/x", "ENDPOINT": "http://b"}, "http://c/x"),
        ("http://a", {"TRACES_ENDPOINT": "http://c/x", "ENDPOINT": "http://b"}, "http://a/v1/traces"),
    ],
)
def test_the_endpoint_of_traces(file: str | None, variables: dict[str, str], expected: str | None) -> None:
    environment = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
    assert traces.trace_endpoint(TraceSettings(endpoint=file), environment) == expected
    assert traces.trace_endpoint(TraceSettings(endpoint=file), environment | {"OTEL_SDK_DISABLED": "true"}) is None


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT must begin with http://"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "h"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must begin with http://"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:x"}, "OTEL_EXPORTER_OTLP_ENDPOINT has a port"),
        ({**URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER must be otlp or none"),
        ({**URL, "OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9"}, "max_queue_size"),
    ],
)
def test_a_variable_that_the_service_cannot_follow_is_named(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(InvalidOperation) as raised:
        traces.open_tracing(TraceSettings(), variables)
    assert words in raised.value.detail


@pytest.mark.parametrize("variables", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "TRUE"}])
def test_variables_disable_traces(variables: dict[str, str]) -> None:
    assert traces.trace_endpoint(TraceSettings(endpoint="http://a"), {**URL, **variables}) is None


def test_without_the_extra_the_start_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tableside.telemetry.span_exporter", raising=False)
    monkeypatch.delattr("tableside.telemetry.span_exporter", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(Unsupported, match=r"pip install 'tableside\[traces\]'"):
        traces.open_tracing(TraceSettings(endpoint="http://a"), {})
    assert traces.open_tracing(TraceSettings(), {}) is None
