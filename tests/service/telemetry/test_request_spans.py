"""Which requests have a span, which trace it continues, and that it is current during the request."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from tableside.http.request_context import RequestContext
from tableside.http.request_observers import RequestSpans
from tableside.telemetry import TraceSettings

ROUTE = "/v1/tables/{table}/records/{key:path}"
TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = b"00-%032x-b7ad6b7169203331-" % TRACE


@pytest.fixture(autouse=True)
def separate_context() -> Iterator[None]:
    token = contexts.attach(Context())
    yield
    assert contexts.get_current() == {}
    contexts.detach(token)


class Watch:
    """The observer and the spans that it has ended."""

    def __init__(self, sample: float = 0.5, chance: Callable[[], float] = lambda: 0.0) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.observer = RequestSpans(provider.get_tracer("test"), TraceSettings(sample=sample), chance)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    def serve(self, *headers: tuple[bytes, bytes], path: str = "/v1/tables/t/records/marked", **notes: Any) -> bool:
        """Serve a request, and return whether a span was current."""
        scope = {"path": path, "headers": headers, "scheme": "https", "http_version": "1.1", "server": ("::1", 443)}
        noted = RequestContext("r", notes.pop("method", "GET"))
        self.observer.start(scope, noted)
        current = get_current_span().is_recording()
        for name, value in {"route": ROUTE, "status": 200, **notes}.items():
            setattr(noted, name, value)
        self.observer.end(scope, noted)
        return current


@pytest.mark.parametrize(("share", "expected"), [(0, 0), (0.25, 250), (1, 1000)])
def test_a_share_of_requests_without_a_trace_start_one(share: float, expected: int) -> None:
    numbers = itertools.cycle([index / 1000 for index in range(1000)])
    watch = Watch(share, lambda: next(numbers))
    assert sum(watch.serve() for _ in range(1000)) == expected
    assert len({span.context.trace_id for span in watch.spans if span.context}) == expected


def test_a_callers_trace_is_continued_only_if_sampled() -> None:
    watch = Watch(0.5)
    assert watch.serve((b"traceparent", PARENT + b"01"), (b"tracestate", b"a=b"), (b"tracestate", b"c=d"))
    assert not watch.serve((b"traceparent", PARENT + b"00"))
    assert not watch.serve((b"traceparent", PARENT + b"02"))
    [span] = watch.spans
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (TRACE, 0xB7AD6B7169203331)
    assert span.context.trace_state.to_header() == "a=b,c=d"


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"nonsense",
        PARENT + b"0",
        PARENT.upper() + b"01",
        b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01",
        b"\xff" * 55,
    ],
)
def test_an_invalid_trace_header_is_ignored(parent: bytes) -> None:
    watch = Watch(1)
    assert watch.serve((b"traceparent", parent))
    [span] = watch.spans
    assert span.parent is None
    assert span.context is not None
    assert span.context.trace_id != TRACE


def test_an_invalid_trace_state_does_not_affect_the_trace() -> None:
    watch = Watch()
    assert watch.serve((b"traceparent", PARENT + b"01"), (b"tracestate", b"\xff,,=="))
    [span] = watch.spans
    assert span.context is not None
    assert span.context.trace_id == TRACE


@pytest.mark.parametrize(
    ("status", "code", "expected", "is_error"),
    [
        (200, None, None, False),
        (404, "record_not_found", "record_not_found", False),
        (502, None, "502", True),
        (0, None, "499", False),
    ],
)
def test_how_it_ended(status: int, code: str | None, expected: str | None, is_error: bool) -> None:
    watch = Watch()
    watch.serve(status=status, code=code)
    [span] = watch.spans
    assert (span.attributes or {}).get("error.type") == expected
    assert (span.attributes or {}).get("http.response.status_code") == (status or None)
    assert (span.status.status_code is StatusCode.ERROR) is is_error


def test_unknown_methods_and_paths_are_not_in_spans() -> None:
    watch = Watch()
    watch.serve(method="MARKED", route="", status=405)
    [span] = watch.spans
    assert (span.name, (span.attributes or {})["http.request.method"]) == ("HTTP", "_OTHER")


def test_a_pipelined_request_is_not_part_of_the_previous_trace() -> None:
    """With pipelined requests, the server starts the next request in the context of the first one."""
    watch = Watch(0)
    scope: dict[str, Any] = {
        "path": "/a",
        "headers": [(b"traceparent", PARENT + b"01")],
        "scheme": "http",
        "http_version": "1.1",
    }
    first = RequestContext("r", "GET")
    watch.observer.start(scope, first)
    before = get_current_span()
    assert before.is_recording()
    assert not watch.serve()
    assert not watch.serve(path="/livez")
    watch.observer.configure(TraceSettings(sample=1))
    assert watch.serve()
    assert get_current_span() is before
    watch.observer.end(scope, first)
    inner, _ = watch.spans
    assert inner.parent is None
