"""Spans of a trace, for whoever is given `Traces`; knows nothing of exporters, of HTTP or of stores.

Where no tracing is configured nobody is given one, and nothing is spent on it.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry.trace import Link, Span, SpanKind, Tracer, get_current_span

Attribute = str | int | float | bool


class Traces:
    """Makes spans. Each is a child of the span that is current where it begins, and current while it lasts."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def span(
        self,
        name: str,
        *,
        attributes: dict[str, Attribute] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> Iterator[Span]:
        """Time what is done within; an exception ends it as an error, without its text, which may hold a value."""
        with self._tracer.start_as_current_span(
            name, attributes=attributes, kind=kind, links=links, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span


def waiting(traces: Traces | None, name: str) -> AbstractContextManager[object]:
    """Time a wait as a span of that name, where there is tracing."""
    return nullcontext() if traces is None else traces.span(name)


def current_link(traces: Traces | None) -> Link | None:
    """Return a link to the span that is current, for another span that serves several callers."""
    if traces is None or not (context := get_current_span().get_span_context()).is_valid:
        return None
    return Link(context)
