"""Export of finished spans through OpenTelemetry's SDK. Only this module imports the SDK."""

import logging
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

from .. import __version__
from ..core import environment_proxy

WARNING_INTERVAL_S = 60.0
"""Interval between warnings while spans cannot be delivered."""

log = logging.getLogger(__name__)


def create_provider(endpoint: str) -> TracerProvider:
    """Return a provider that sends spans to an endpoint from a thread, in batches every few seconds.

    `RequestSpans` decides which traces to sample. At most 2,048 spans are buffered while the collector is unavailable.
    OpenTelemetry's environment variables set headers, timeouts and other options.
    """
    for noisy in ("opentelemetry.sdk", "opentelemetry.exporter"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # `ReportingExporter` logs failures instead
    made = TracerProvider(ParentBased(ALWAYS_ON), _resource(), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint, session=None if environment_proxy(endpoint) else _session_without_proxy())
    made.add_span_processor(BatchSpanProcessor(ReportingExporter(exporter, endpoint)))
    return made


def _session_without_proxy() -> requests.Session | None:
    """Return a session that ignores the proxies of the environment, None if there are none."""
    if not getproxies():
        return None
    session = requests.Session()
    session.trust_env = False
    return session


def _resource() -> Resource:
    ours = Resource({"service.name": "tableside", "service.version": __version__})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


class ReportingExporter(SpanExporter):
    """Exports spans, and logs when the export starts to fail and when it works again."""

    def __init__(self, inner: SpanExporter, endpoint: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        url = urlsplit(endpoint)
        address = f"{url.hostname}:{url.port}" if url.port else url.hostname  # without user and password
        proxy = environment_proxy(endpoint)
        self._address = f"{address}, through {proxy}" if proxy else address
        self._monotonic = monotonic
        self._lost = 0
        self._warned_at: float | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans. Spans that cannot be delivered are lost."""
        result = self._export(spans)
        if result is SpanExportResult.SUCCESS:
            self._delivered()
        else:
            self._failed(len(spans))
        return result

    def shutdown(self) -> None:
        """Shut down the inner exporter."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return immediately: this exporter buffers nothing."""
        return True

    def _export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            return self._inner.export(spans)
        except Exception as error:  # noqa: BLE001  # no failure may stop the export of later spans
            log.debug("sending spans failed: %s", error)
            return SpanExportResult.FAILURE

    def _failed(self, count: int) -> None:
        self._lost += count
        now = self._monotonic()
        if self._warned_at is None or now - self._warned_at >= WARNING_INTERVAL_S:
            self._warned_at = now
            log.warning("spans cannot be delivered to %s", self._address, extra={"lost": self._lost})

    def _delivered(self) -> None:
        if self._warned_at is not None:
            log.info("spans are delivered to %s again", self._address, extra={"lost": self._lost})
            self._warned_at, self._lost = None, 0
