"""Spans of a trace, for whoever is given `Traces`; knows nothing of exporters, of HTTP or of stores.

Where no tracing is configured nobody is given one, and nothing is spent on it. A trace begins at the edge; what is
made here continues one, and only where it is sampled.
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
    """Makes spans. Each is a child of the span that is current where it begins, and current while it lasts."""

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
        """Time what is done within; what it raises ends it as an error, without its text, which may hold a value.

        Where the current trace is not sampled, or there is none, the span is one that takes nothing and goes nowhere.
        """
        if current_context(self) is None:
            return _NO_SPAN
        return _Current(self._tracer.start_span(name, kind=kind, attributes=attributes, links=[*links]))

    def start_span(self, name: str) -> Span | None:
        """Begin a span that is never current, of a wait that ends elsewhere; who has it ends it."""
        return None if current_context(self) is None else self._tracer.start_span(name)

    def shared_span(self, name: str, sharers: Sequence[Span]) -> AbstractContextManager[Span]:
        """Time what is done within for several spans: as a child of the first, linked to the others, and they to it.

        Without any of them it belongs to no trace, whoever's task this is.
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
    """A span that is current within; a class, since a generator costs three times as much."""

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
    """Time a wait as a span of that name, where there is tracing."""
    return _NO_SPAN if traces is None else traces.span(name, links=[link for link in links if link is not None])


def current_context(traces: Traces | None) -> SpanContext | None:
    """Return what tells the current span from others, where there is one whose trace is sampled."""
    if traces is None:
        return None
    context = get_current_span().get_span_context()
    return context if context.trace_flags & 1 else None


def current_link(traces: Traces | None) -> Link | None:
    """Return a link to the span that is current, for another span that serves several callers."""
    context = current_context(traces)
    return None if context is None else Link(context)
