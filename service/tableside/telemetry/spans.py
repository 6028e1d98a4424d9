"""Spans within sampled traces.

The HTTP layer starts traces. `Traces` adds spans to them if they are sampled. Without tracing, components get None
instead of `Traces`, and tracing costs nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Token

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)

Attribute = str | int | float | bool

_NO_SPAN: AbstractContextManager[Span] = nullcontext(INVALID_SPAN)


class Traces:
    """Creates spans. A span is a child of the current span at its start, and is itself current until its end."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def span(
        self,
        name: str,
        *,
        attributes: Mapping[str, Attribute] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Iterable[Link] = (),
    ) -> AbstractContextManager[Span]:
        """Record a `with` block as a span. An exception marks it as an error, but its message is not recorded.

        If there is no current trace or it is not sampled, the span is a no-op.
        """
        if current_context(self) is None:
            return _NO_SPAN
        return _Current(self._tracer.start_span(name, kind=kind, attributes=attributes, links=[*links]))

    def start_span(self, name: str) -> Span | None:
        """Start a span that is never current, for a wait that ends elsewhere. The caller must end it."""
        return None if current_context(self) is None else self._tracer.start_span(name)

    def shared_span(self, name: str, sharers: Sequence[Span]) -> AbstractContextManager[Span]:
        """Record work shared by several spans, as a child of the first with links to and from the others.

        Without sharers the work belongs to no trace, not even that of the current task.
        """
        if not sharers:
            return _Current(INVALID_SPAN)
        links = [Link(sharer.get_span_context()) for sharer in sharers[1:]]
        context = set_span_in_context(sharers[0], Context())
        span = self._tracer.start_span(name, context, attributes={"tableside.sharers": len(sharers)}, links=links)
        for sharer in sharers[1:]:
            sharer.add_link(span.get_span_context())
        return _Current(span)


class _Current:
    """Makes a span current in a `with` block. A class, because a generator costs three times as much."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None

    def __enter__(self) -> Span:
        self._token = contexts.attach(set_span_in_context(self._span))
        return self._span

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if kind is not None:
            self._span.set_attribute("error.type", kind.__qualname__)
            if not issubclass(kind, asyncio.CancelledError):
                self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def wait_span(traces: Traces | None, name: str, links: Iterable[Link | None] = ()) -> AbstractContextManager[object]:
    """Record a wait as a span, if there is tracing."""
    return _NO_SPAN if traces is None else traces.span(name, links=[link for link in links if link is not None])


def current_context(traces: Traces | None) -> SpanContext | None:
    """Return the context of the current span if its trace is sampled, else None."""
    if traces is None:
        return None
    context = get_current_span().get_span_context()
    return context if context.trace_flags & 1 else None


def current_link(traces: Traces | None) -> Link | None:
    """Return a link to the current span, for a span that serves several callers."""
    context = current_context(traces)
    return None if context is None else Link(context)
