"""A policy creates a span for each wait of a traced request, and no other span."""

import asyncio
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.scripted import Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import Budget
from tableside.core.errors import StoreUnavailable
from tableside.core.operations import Get, Operation
from tableside.core.store import Policy
from tableside.policies.bulkhead import Bulkhead
from tableside.policies.rate_limit import Rate, RateLimit
from tableside.policies.retry import Retry, RetrySchedule
from tableside.telemetry.traces import Traces


@in_virtual_time
async def test_only_a_wait_creates_a_span() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")

    async def spans(policy: Policy, operations: Sequence[Operation]) -> list[str]:
        exporter.clear()
        with tracer.start_as_current_span("request", Context()):
            await policy.apply(operations, Budget(now() + 60))
        *waits, request = [span.name for span in exporter.get_finished_spans()]
        assert request == "request"
        return waits

    store = Scripted()
    store.fault = lambda operation, call: StoreUnavailable("it fails") if call <= 2 else None
    schedule = RetrySchedule(attempts_max=3, pause_s=1)
    retry = Retry(store, read=schedule, write=schedule, jitter=lambda: 1.0, traces=Traces(tracer))
    assert await spans(retry, [Get("a")]) == ["retry pause"] * 2
    assert await spans(retry, [Get("a")]) == []
    limit = RateLimit(Scripted(), read=Rate(10, 2), write=None, traces=Traces(tracer))
    assert await spans(limit, [Get("a"), Get("b")]) == []
    assert await spans(limit, [Get("a")]) == ["rate limit wait"]
    busy = Scripted()
    busy.takes_s = lambda operations: 1.0
    bulkhead = Bulkhead(busy, 1, traces=Traces(tracer))
    assert await spans(bulkhead, [Get("a")]) == []
    other = asyncio.create_task(bulkhead.apply([Get("a")]))
    await asyncio.sleep(0)
    assert await spans(bulkhead, [Get("a")]) == ["bulkhead wait"]
    await other
