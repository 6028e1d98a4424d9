"""Waits are spans, a shared call is linked to each of its requests, and unsampled requests create no spans."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, get_current_span, use_span

from support.scripted import Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.operations import Get, Operation, Outcome
from tableside.core.store import Store
from tableside.policies.coalesce import Coalesce
from tableside.telemetry.traces import Traces, wait_span


class Watch:
    """A tracer that keeps ended spans. `request` applies operations in the root span of a request."""

    def __init__(self, sample: float = 1.0) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(ParentBased(TraceIdRatioBased(sample)), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("test")
        self.traces = Traces(self.tracer)

    async def request(self, name: str, store: Store, operations: Sequence[Operation], left_s: float = 60) -> Span:
        with self.tracer.start_as_current_span(name, Context()) as span:
            await store.apply(operations, Budget(now() + left_s))
        return span

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def child_of(self, parent: Span | ReadableSpan, name: str) -> ReadableSpan:
        [span] = (span for span in self.spans if span.name == name and span.parent == parent.get_span_context())
        return span


@pytest.fixture(autouse=True)
def context_is_restored() -> Iterator[None]:
    before = contexts.get_current()
    yield
    assert contexts.get_current() == before


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def identity(span: Span | ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


class Traced(Scripted):
    """A store that creates a span for each call, like the innermost policy."""

    def __init__(self, traces: Traces, takes_s: float = 1.0) -> None:
        super().__init__()
        self._traces = traces
        self.takes_s = lambda operations: takes_s

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        with self._traces.span("store call"):
            return await super().apply(operations, budget)


@in_virtual_time
async def test_a_call_that_callers_share_is_linked_with_each_of_them() -> None:
    watch, unsampled = Watch(), Watch(sample=0.0)
    store = Coalesce(Traced(watch.traces), singles={Get: 100}, traces=watch.traces)
    first, second, _ = await asyncio.gather(
        *(each.request(key, store, [Get(key)]) for each, key in ((watch, "a"), (watch, "b"), (unsampled, "c")))
    )
    owners, guests = (watch.child_of(request, "coalesce wait") for request in (first, second))
    shared = watch.child_of(owners, "shared call")
    watch.child_of(shared, "store call")
    assert shared.attributes == {"tableside.sharers": 2}
    assert [linked(span) for span in (shared, owners, guests)] == [[identity(guests)], [], [identity(shared)]]


@in_virtual_time
async def test_a_call_without_its_first_caller_is_not_in_the_trace_of_that_caller() -> None:
    """The second request, whose trace is not sampled, takes over the slot of the first."""
    watch, unsampled = Watch(), Watch(sample=0.0)
    inner = Traced(watch.traces)
    store = Coalesce(inner, singles={Get: 100}, traces=watch.traces)
    first = asyncio.create_task(watch.request("one", store, [Get("a")]))
    second = asyncio.create_task(unsampled.request("two", store, [Get("a")]))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert len(inner.calls) == 1
    assert sorted(watch.names) == ["coalesce wait", "one"]


def test_no_spans_are_created_outside_of_a_sampled_trace() -> None:
    watch, unsampled = Watch(), Watch(sample=0.0)
    for current in (None, unsampled.tracer.start_span("request")):
        context = contexts.attach(Context())
        with use_span(current) if current else wait_span(None, "nothing"):
            before = get_current_span()
            with watch.traces.span("store call") as span, wait_span(watch.traces, "wait"):
                assert get_current_span() is before
            assert not span.is_recording()
            assert watch.traces.start_span("wait") is None
        contexts.detach(context)
    assert watch.names == []
