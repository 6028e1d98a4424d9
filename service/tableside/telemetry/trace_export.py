"""Start and stop the export of traces with the service.

The exporter is imported only if an endpoint is configured.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import __version__
from ..core import Unsupported
from .settings import TraceSettings
from .spans import Traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

CLOSE_TIMEOUT_S = 2.0
"""How long undelivered spans may delay the shutdown."""

log = logging.getLogger(__name__)

TRACES_PATH = "/v1/traces"


class Tracing:
    """The tracer of one process: `tracer` for requests, `traces` for the spans within them."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self.tracer = provider.get_tracer("tableside", __version__)
        self.traces = Traces(self.tracer)

    async def close(self) -> None:
        """Deliver the finished spans. Spans not delivered within `CLOSE_TIMEOUT_S` are lost."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        # The SDK's own timeouts have no effect if a collector hangs.
        closing = threading.Thread(target=self._provider.shutdown, name="close traces", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)
        if closing.is_alive():
            log.warning("spans that were not delivered within %g s are lost", CLOSE_TIMEOUT_S)


def open_tracing(settings: TraceSettings, environment: Mapping[str, str]) -> Tracing | None:
    """Start tracing if there is an endpoint. Raise Unsupported if the exporter is not installed."""
    if (url := trace_endpoint(settings, environment)) is None:
        return None
    try:
        from . import span_exporter
    except ModuleNotFoundError as error:
        why = "traces have an endpoint, and what exports them is not installed: pip install 'tableside[traces]'"
        raise Unsupported(why) from error
    return Tracing(span_exporter.create_provider(url))


def trace_endpoint(settings: TraceSettings, environment: Mapping[str, str]) -> str | None:
    """Return the URL for spans, from the settings or else from OpenTelemetry's environment variables."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    whole = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    base = settings.endpoint or (None if whole else environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
    if not base:
        return whole or None
    return base if base.endswith(TRACES_PATH) else base.rstrip("/") + TRACES_PATH
