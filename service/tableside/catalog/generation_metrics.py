"""The metrics of generations: those that each table has, and how often they change."""

from prometheus_client import CollectorRegistry, Gauge

from ..telemetry import Counter
from .generations import STATES, Generation, Generations

REPLACED = "replaced"
DELETED = "deleted"
IDLE = "idle"


class GenerationMetrics:
    """The metrics that the tables of one catalog share. Every process sets the gauges to the same values."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="livemax")

        self._current = gauge("tableside_generation", "The number of a table's current generation.", "table")
        self._count = gauge("tableside_generations", "Generations of a table by their state.", "table", "state")
        self._loading_seconds = gauge(
            "tableside_generation_loading_seconds",
            "Time since the creation of the oldest generation that loads, 0 if none does.",
            "table",
        )
        self._idle_seconds = gauge(
            "tableside_generation_idle_seconds",
            "Time since the last noted write of the oldest generation that loads, 0 if none does.",
            "table",
        )
        self._activations = Counter(
            "tableside_generation_activations",
            "How often another generation of a table became current.",
            ("table",),
            registry=registry,
        )
        self._removals = Counter(
            "tableside_generation_removals",
            "Removed generations, by the reason: replaced (by an activation), deleted, idle (not written any more).",
            ("table", "reason"),
            registry=registry,
        )

    def show(self, table: str, generations: Generations, now_ms: int) -> None:
        """Set the gauges of a table."""
        oldest = next((one for one in generations.every if one.state == "loading"), None)
        self._set(table, generations.current.number, generations.every, oldest, now_ms)
        self._activations.labels(table)  # at 0 before the first one: a rate needs two values

    def hide(self, table: str) -> None:
        """Set the gauges of a table that was removed from the configuration to 0."""
        self._set(table, 0, (), None, 0)

    def count_activation(self, table: str) -> None:
        """Count that another generation became current."""
        self._activations.labels(table).inc()

    def count_removal(self, table: str, reason: str) -> None:
        """Count a removed generation."""
        self._removals.labels(table, reason).inc()

    def _set(
        self, table: str, current: int, every: tuple[Generation, ...], oldest: Generation | None, now_ms: int
    ) -> None:
        self._current.labels(table).set(current)
        for state in STATES:
            self._count.labels(table, state).set(sum(one.state == state for one in every))
        created_ms, written_ms = (now_ms, now_ms) if oldest is None else (oldest.created_ms, oldest.written_ms)
        self._loading_seconds.labels(table).set(max(0, now_ms - created_ms) / 1000)
        self._idle_seconds.labels(table).set(max(0, now_ms - written_ms) / 1000)
