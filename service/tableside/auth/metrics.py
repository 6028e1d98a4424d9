"""Metrics of issuers. The label `issuer` is the configured issuer, never one that a token names."""

from prometheus_client import CollectorRegistry, Gauge

from ..telemetry import Counter


class IssuerMetrics:
    """The metrics of the issuers in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fetches = Counter(
            "tableside_issuer_fetches",
            "Fetches of an issuer's keys, by outcome: fetched or failed.",
            ("issuer", "outcome"),
            registry=registry,
        )
        self.keys = Gauge(
            "tableside_issuer_keys",
            "Keys of an issuer that can verify tokens now; NaN after the issuer was removed from the configuration.",
            ("issuer",),
            registry=registry,
            multiprocess_mode="livemin",
        )
