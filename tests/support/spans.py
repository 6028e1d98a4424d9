"""The names of the spans that a store creates within a traced request."""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.virtual_time import now
from tableside.core.budget import Budget
from tableside.core.operations import Operation
from tableside.core.store import Store
from tableside.telemetry.traces import Traces


class Spans:
    """Provides the `traces` of policies under test."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self._tracer = provider.get_tracer("test")
        self.traces = Traces(self._tracer)

    async def of(self, store: Store, operations: Sequence[Operation], left_s: float = 60) -> list[str]:
        """Return the spans created while a store applied these operations, ordered by their end."""
        self._kept.clear()
        with self._tracer.start_as_current_span("request", Context()):
            await store.apply(operations, Budget(now() + left_s))
        *within, request = [span.name for span in self._kept.get_finished_spans()]
        assert request == "request"
        return within
