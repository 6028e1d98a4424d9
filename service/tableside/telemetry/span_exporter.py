"""Export of finished spans through OpenTelemetry's SDK. Only this module imports the SDK."""

from urllib.request import getproxies

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

from .. import __version__
from ..core import environment_proxy


def create_provider(endpoint: str) -> TracerProvider:
    """Return a provider that sends spans to an endpoint from a thread, in batches every few seconds.

    `RequestSpans` decides which traces to sample. At most 2,048 spans are buffered while the collector is unavailable.
    OpenTelemetry's environment variables set headers, timeouts and other options. The SDK logs failures.
    """
    ours = Resource({"service.name": "tableside", "service.version": __version__})
    resource = Resource.create().merge(ours).merge(OTELResourceDetector().detect())
    made = TracerProvider(ParentBased(ALWAYS_ON), resource, shutdown_on_exit=False)
    session = None
    if getproxies() and environment_proxy(endpoint) is None:
        session = requests.Session()
        session.trust_env = False  # The library has other rules for proxies.
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, session=session)))
    return made
