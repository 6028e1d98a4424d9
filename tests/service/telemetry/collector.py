"""A minimal trace collector for tests, with OTLP over HTTP."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.waiting import until


@dataclass(frozen=True)
class Seen:
    """An exported span, with ids in hexadecimal and times in nanoseconds."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    links: list[str]
    attributes: dict[str, Any]
    status: int
    began: int
    ended: int
    resource: dict[str, Any]


@dataclass
class Collector:
    """The received requests. The collector responds with `status`, and blocks while `answering` is not set."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    answering: Event = field(default_factory=Event)
    status: int = 200

    @property
    def spans(self) -> list[Seen]:
        return [span for body in self.bodies for span in _spans(body)]

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    def wait_for(self, enough: Callable[[], bool]) -> None:
        until(enough, otherwise=lambda: f"only these came: {[span.name for span in self.spans]}")


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    collector = Collector()
    collector.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.answering.wait(60)
            collector.paths.append(self.path)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            if collector.status == 200:
                collector.bodies.append(body)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore the error: a service that has ended does not wait for its response."""

    server = Server(("127.0.0.1", port), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        collector.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(body: bytes) -> Iterator[Seen]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Seen(
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    [link.span_id.hex() for link in span.links],
                    _attributes(span.attributes),
                    span.status.code,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    about,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
