"""Runs: batch writes of Spark with a token, which the companion `TABLE@runs` of their table remembers."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from tableside_client.blocking import Table

RUNS = "@runs"
"""The suffix of the name of a table's companion."""
RUN_PREFIX = "run/"
"""The keys of runs begin with it. The companion also remembers streaming queries, by their ids."""
EVENTS_KEY = "run-events"
"""Numbers the starts and ends of all runs, so that their order does not depend on the clocks of the jobs."""

Companion = Table[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """A run. Times are RFC 3339 in UTC. `rows` is the number of rows that took effect, if it has finished.

    `asked` are the arguments that determine what is written, apart from the rows, as texts. `writers` is how many
    writers of one record the run may be. `last_event` is the number of its latest start, or of its end.
    """

    token: str
    operation: str
    asked: Mapping[str, str] = field(default_factory=dict)
    writers: int = 1
    started: str = ""
    resumed: str | None = None
    finished: str | None = None
    rows: int | None = None
    first_event: int = 0
    last_event: int = 0

    @property
    def key(self) -> str:
        """The key of the run's record."""
        return RUN_PREFIX + self.token

    def record(self) -> dict[str, Any]:
        """Return the value of the run's record."""
        return {name: member for name, member in asdict(self).items() if name != "token" and member is not None}

    @classmethod
    def from_record(cls, key: str, value: Mapping[str, Any]) -> Self:
        """Read a run's record. Members of later versions are ignored."""
        known = {member.name: value[member.name] for member in fields(cls) if member.name in value}
        return cls(**{**known, "token": key.removeprefix(RUN_PREFIX)})


def scan_runs(companion: Companion) -> Iterator[Run]:
    """Return all runs of a table, in any order and without `asked`."""
    names = [member.name for member in fields(Run) if member.name not in ("token", "asked")]
    for record in companion.scan(prefix=RUN_PREFIX, fields=names):
        yield Run.from_record(record.key, record.value)


def next_event(companion: Companion) -> int:
    """Return the number of a new event, which is higher than those of all earlier events of the table's runs."""
    written = companion.update(EVENTS_KEY, {"$inc": {"events": 1}}, default={}, ttl_s=-1, return_value=True)
    assert written.value is not None
    return int(written.value["events"])
