"""What OpenTelemetry's SDK does with spans that have ended; the only module that knows it."""

import logging
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

from .. import __version__

WARNING_INTERVAL_S = 60.0
"""How often it is said that spans are still not delivered."""

log = logging.getLogger(__name__)


def create_provider(endpoint: str) -> TracerProvider:
    """Return what makes spans and sends them to an endpoint, a few seconds' worth at a time, in a thread.

    What begins a trace decides whether to; see `request_spans`. 2,048 spans at most are kept for a collector that is
    away. Headers, timeouts and the like are those of the environment variables of OpenTelemetry.
    """
    for noisy in ("opentelemetry.sdk", "opentelemetry.exporter"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # `ReportingExporter` says it, once
    made = TracerProvider(ParentBased(ALWAYS_ON), _resource(), shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(ReportingExporter(OTLPSpanExporter(endpoint), endpoint)))
    return made


def _resource() -> Resource:
    ours = Resource({"service.name": "tableside", "service.version": __version__})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


class ReportingExporter(SpanExporter):
    """Sends spans on, and says in the log when that begins to fail, and when it works again."""

    def __init__(self, inner: SpanExporter, endpoint: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        url = urlsplit(endpoint)
        self._where = f"{url.hostname}:{url.port}" if url.port else url.hostname  # and no password
        self._monotonic = monotonic
        self._lost = 0
        self._told_at: float | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans on; those that cannot be delivered are lost."""
        result = self._exported(spans)
        if result is SpanExportResult.SUCCESS:
            self._delivered()
        else:
            self._failed(len(spans))
        return result

    def shutdown(self) -> None:
        """Send nothing more."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return at once: nothing is kept here."""
        return True

    def _exported(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            return self._inner.export(spans)
        except Exception as error:  # noqa: BLE001  # whatever it is, the next spans are tried again
            log.debug("sending spans failed: %s", error)
            return SpanExportResult.FAILURE

    def _failed(self, count: int) -> None:
        self._lost += count
        now = self._monotonic()
        if self._told_at is None or now - self._told_at >= WARNING_INTERVAL_S:
            self._told_at = now
            log.warning("spans cannot be delivered to %s", self._where, extra={"lost": self._lost})

    def _delivered(self) -> None:
        if self._told_at is not None:
            log.info("spans are delivered to %s again", self._where, extra={"lost": self._lost})
            self._told_at, self._lost = None, 0
