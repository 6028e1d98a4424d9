"""The keys of state records in a table. The Java provider writes them.

A key consists of a place, which groups related records, and an item in it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

GROUP_CHUNKS = 16
"""The number of chunks that a writer sends together. No chunk exists after a group that is entirely absent."""

REGISTRATIONS = "queries"
QUERY_ID_DIGITS = "0123456789abcdef"
"""The possible last characters of a query's id."""


REQUEST_RECORDS_MAX = 200


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a record."""

    place: str
    item: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A store of one partition of an operator of a query. Its text is `query/operator/partition/store`."""

    query: str
    operator: int
    partition: int
    store: str

    def __str__(self) -> str:
        return f"{self.query}/{self.operator}/{self.partition}/{self.store}"

    @property
    def floor(self) -> Key:
        """The record of the floor: all versions below it have been removed."""
        return self._at("floor")

    def attempts(self, version: int) -> Key:
        """The record of all attempts to write a version, or a snapshot of it."""
        return self._at(f"attempts/{_number(version)}")

    def manifest(self, version: int, uid: str | None = None) -> Key:
        """The manifest, which makes a version visible. In checkpoint format 2, its key contains the commit's uid."""
        return self._at(f"version/{_number(version)}" + ("" if uid is None else f"/{uid}"))

    def snapshot(self, version: int, name: str) -> Key:
        """The description of a snapshot of a version."""
        return self._at(snapshot_chunks(version, name))

    def chunk(self, chunks: str, index: int) -> Key:
        """A chunk of a delta or a snapshot."""
        return self._at(f"{chunks}/{index:06d}")

    def _at(self, item: str) -> Key:
        return Key(str(self), item)


def delta_chunks(version: int, uid: str) -> str:
    """The prefix of the items of a delta's chunks."""
    return f"delta/{_number(version)}/{uid}"


def snapshot_chunks(version: int, name: str) -> str:
    """The prefix of the items of a snapshot's chunks."""
    return f"snapshot/{_number(version)}/{name}"


def registrations() -> list[Key]:
    """Return the keys of the records that register the queries of a table."""
    return [Key(REGISTRATIONS, item) for item in QUERY_ID_DIGITS]


def registration(query: str) -> Key:
    """The record that registers a query, together with others."""
    return Key(REGISTRATIONS, query[-1])


def description(query: str) -> Key:
    """The description of a query."""
    return Key(query, "query")


def runs(query: str) -> Key:
    """The record of the order of a query's runs, which checkpoint format 1 requires."""
    return Key(query, "runs")


def request_parts(keys: Iterable[Key]) -> Iterator[list[Key]]:
    """Yield keys in order, in lists that fit in one request."""
    left = iter(keys)
    while part := list(islice(left, REQUEST_RECORDS_MAX)):
        yield part


def _number(version: int) -> str:
    return f"{version:020d}"
