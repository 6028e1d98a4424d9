"""Start and stop the export of traces with the service.

The exporter is imported only if an endpoint is configured.
"""

import asyncio
import logging
import os
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, Field

from .. import __version__
from ..core import InvalidOperation, Unsupported, checked_url
from .spans import Traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

CLOSE_TIMEOUT_S = 2.0
"""How long undelivered spans may delay the shutdown."""

log = logging.getLogger(__name__)

TRACES_PATH = "/v1/traces"

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"

_VALUES = {"COMPRESSION": "none|gzip|deflate", "TIMEOUT": r"[0-9]+(\.[0-9]+)?"}
"""The values of options that the exporter knows. A timeout is in seconds."""

_WITHOUT_EFFECT = {
    "OTEL_TRACES_SAMPLER": "traces.sample in the configuration file is the sampled share",
    "OTEL_TRACES_SAMPLER_ARG": "traces.sample in the configuration file is the sampled share",
    "OTEL_PROPAGATORS": "traces continue by traceparent only",
}


class TraceSettings(BaseModel, frozen=True, extra="forbid"):
    """The endpoint for traces (OTLP over HTTP, none disables them), and the sampled share of traces that start here."""

    endpoint: Annotated[str, Field(pattern=r"^https?://"), AfterValidator(checked_url)] | None = None
    sample: float = Field(default=0.01, ge=0, le=1)


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
    """Start tracing if there is an endpoint.

    Raise Unsupported if the exporter is not installed, InvalidOperation if a variable has a value that it cannot use.
    """
    if (url := trace_endpoint(settings, environment)) is None:
        return None
    try:
        from . import span_exporter
    except ModuleNotFoundError as error:
        why = "traces have an endpoint, and what exports them is not installed: pip install 'tableside[traces]'"
        raise Unsupported(why) from error
    _check_exporter(environment)
    for name, instead in _WITHOUT_EFFECT.items():
        if environment.get(name):
            log.warning("%s has no effect: %s", name, instead)
    try:
        return Tracing(span_exporter.create_provider(url))
    except ValueError as error:
        raise InvalidOperation(f"a variable OTEL_BSP_… is not valid: {error}") from error


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
    endpoint = _endpoint(settings, environment)
    if endpoint is not None:
        _check_protocol(environment)
    return endpoint


def _endpoint(settings: TraceSettings, environment: Mapping[str, str]) -> str | None:
    whole = environment.get(_TRACES_ENDPOINT)
    if not settings.endpoint and whole:
        return _checked(_TRACES_ENDPOINT, whole)
    base = settings.endpoint or _checked(_ENDPOINT, environment.get(_ENDPOINT) or "")
    if not base:
        return None
    return base if base.endswith(TRACES_PATH) else base.rstrip("/") + TRACES_PATH


def _checked(name: str, url: str) -> str:
    if url and not url.lower().startswith(("http://", "https://")):
        raise InvalidOperation(f"{name} must begin with http:// or https://")
    try:
        return url and checked_url(url)
    except ValueError as error:
        raise InvalidOperation(f"{name} {error}") from None


def _check_protocol(environment: Mapping[str, str]) -> None:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environment.get(name, "").strip().lower():
            if protocol != "http/protobuf":
                raise InvalidOperation(f"{name} must be http/protobuf, for which collectors usually have port 4318")
            return


def _check_exporter(environment: Mapping[str, str]) -> None:
    """Check what the exporter would replace by a default, or miss later when it sends spans."""
    for signal in ("", "TRACES_"):
        for option, pattern in _VALUES.items():
            name = f"OTEL_EXPORTER_OTLP_{signal}{option}"
            if (value := environment.get(name)) and not re.fullmatch(pattern, value.strip().lower()):
                raise InvalidOperation(f"{name} must match {pattern}")
        for file in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
            name = f"OTEL_EXPORTER_OTLP_{signal}{file}"
            if (path := environment.get(name)) and not os.access(path, os.R_OK):
                raise InvalidOperation(f"{name} names a file that does not exist or cannot be read")
