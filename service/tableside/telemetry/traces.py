"""Traces: their export, which starts and stops with the service, and the spans within them.

The exporter is imported only if an endpoint is configured. The HTTP layer starts traces. `Traces` adds spans to them if
they are sampled. Without tracing, components get None instead of `Traces`, and tracing costs nothing.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated

from opentelemetry import context as contexts, trace
from opentelemetry.trace import Span, SpanContext, SpanKind
from pydantic import AfterValidator, BaseModel, Field

from .. import __version__
from ..core import InvalidOperation, Unsupported, checked_url

log = logging.getLogger(__name__)

Attribute = str | int | float | bool

_NO_SPAN: AbstractContextManager[Span] = nullcontext(trace.INVALID_SPAN)


class Traces:
    """Creates spans with the `tracer` of a provider, which `shutdown` ends.

    A span is a child of the current span at its start, and is itself current until its end.
    """

    def __init__(self, tracer: trace.Tracer, shutdown: Callable[[], None] = lambda: None) -> None:
        self.tracer = tracer
        self._shutdown = shutdown

    async def close(self) -> None:
        """Deliver the finished spans. Spans not delivered within `CLOSE_TIMEOUT_S` are lost."""
        # The SDK's own timeouts have no effect if a collector hangs.
        closing = threading.Thread(target=self._shutdown, name="close traces", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_TIMEOUT_S)
        if closing.is_alive():
            log.warning("spans that were not delivered within %g s are lost", CLOSE_TIMEOUT_S)

    def span(
        self, name: str, *, attributes: Mapping[str, Attribute] | None = None, kind: SpanKind = SpanKind.INTERNAL
    ) -> AbstractContextManager[Span]:
        """Record a `with` block as a span. An exception marks it as an error, but its message is not recorded.

        If there is no current trace or it is not sampled, the span is a no-op.
        """
        if current_context(self) is None:
            return _NO_SPAN
        return _current(self.tracer.start_span(name, kind=kind, attributes=attributes))

    def start_span(self, name: str) -> Span | None:
        """Start a span that is never current, for a wait that ends elsewhere. The caller must end it."""
        return None if current_context(self) is None else self.tracer.start_span(name)

    def shared_span(self, name: str, sharers: Sequence[Span]) -> AbstractContextManager[Span]:
        """Record work shared by several spans, as a child of the first with links to and from the others.

        Without sharers the work belongs to no trace, not even that of the current task.
        """
        if not sharers:
            return _current(trace.INVALID_SPAN)
        links = [trace.Link(sharer.get_span_context()) for sharer in sharers[1:]]
        context = trace.set_span_in_context(sharers[0], contexts.Context())
        span = self.tracer.start_span(name, context, attributes={"tableside.sharers": len(sharers)}, links=links)
        for sharer in sharers[1:]:
            sharer.add_link(span.get_span_context())
        return _current(span)


@contextmanager
def _current(span: Span) -> Iterator[Span]:
    """Make a span current in a `with` block, and end it."""
    token = contexts.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        span.set_attribute("error.type", type(error).__qualname__)
        if not isinstance(error, asyncio.CancelledError):
            span.set_status(trace.StatusCode.ERROR)
        raise
    finally:
        contexts.detach(token)
        span.end()


def wait_span(traces: Traces | None, name: str) -> AbstractContextManager[object]:
    """Record a wait as a span, if there is tracing."""
    return _NO_SPAN if traces is None else traces.span(name)


def current_context(traces: Traces | None) -> SpanContext | None:
    """Return the context of the current span if its trace is sampled, else None."""
    if traces is None:
        return None
    context = trace.get_current_span().get_span_context()
    return context if context.trace_flags & 1 else None


CLOSE_TIMEOUT_S = 2.0
"""How long undelivered spans may delay the shutdown."""

TRACES_PATH = "/v1/traces"


class TraceSettings(BaseModel, frozen=True, extra="forbid"):
    """The endpoint for traces (OTLP over HTTP, none disables them), and the sampled share of traces that start here."""

    endpoint: Annotated[str, Field(pattern=r"^https?://"), AfterValidator(checked_url)] | None = None
    sample: float = Field(default=0.01, ge=0, le=1)


def open_tracing(settings: TraceSettings, environment: Mapping[str, str]) -> Traces | None:
    """Start tracing if there is an endpoint.

    Raise Unsupported if the exporter is not installed, InvalidOperation if a variable asks for what it cannot do.
    """
    if (url := trace_endpoint(settings, environment)) is None:
        return None
    try:
        from . import span_exporter
    except ModuleNotFoundError as error:
        why = "traces have an endpoint, and what exports them is not installed: pip install 'tableside[traces]'"
        raise Unsupported(why) from error
    try:
        provider = span_exporter.create_provider(url)
    except ValueError as error:
        raise InvalidOperation(f"a variable OTEL_BSP_… is not valid: {error}") from error
    return Traces(provider.get_tracer("tableside", __version__), provider.shutdown)


def trace_endpoint(settings: TraceSettings, environment: Mapping[str, str]) -> str | None:
    """Return the URL for spans, from the settings or else from OpenTelemetry's environment variables.

    Raise InvalidOperation for a variable that asks for what the service cannot do.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter == "none":
        return None
    if exporter not in ("", "otlp"):
        raise InvalidOperation("OTEL_TRACES_EXPORTER must be otlp or none: the service sends spans by OTLP only")
    if settings.endpoint is None and (whole := _url(environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        url = whole
    elif base := settings.endpoint or _url(environment, "OTEL_EXPORTER_OTLP_ENDPOINT"):
        url = base if base.endswith(TRACES_PATH) else base.rstrip("/") + TRACES_PATH
    else:
        return None
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(name, "").strip().lower()
        if protocol not in ("", "http/protobuf"):
            raise InvalidOperation(f"{name} must be http/protobuf, for which collectors usually have port 4318")
        if protocol:
            break
    return url


def _url(environment: Mapping[str, str], name: str) -> str:
    """Return the URL in a variable, or an empty text."""
    url = environment.get(name, "")
    if url and not url.lower().startswith(("http://", "https://")):
        raise InvalidOperation(f"{name} must begin with http:// or https://")
    try:
        return url and checked_url(url)
    except ValueError as error:
        raise InvalidOperation(f"{name} {error}") from None
