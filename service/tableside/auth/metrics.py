"""Metrics of issuers. The label `issuer` is the configured issuer, never one that a token names."""

from prometheus_client import CollectorRegistry, Gauge

from ..telemetry import Counter


class IssuerMetrics:
    """The metrics of the issuers in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fetches = Counter(
            "tableside_issuer_fetches",
            "Times that the keys of an issuer were asked for, by whether they were fetched or that failed.",
            ("issuer", "outcome"),
            registry=registry,
        )
        self.keys = Gauge(
            "tableside_issuer_keys",
            "Keys of an issuer by which tokens can be verified now; NaN once it is not configured any more.",
            ("issuer",),
            registry=registry,
            multiprocess_mode="livemin",
        )
