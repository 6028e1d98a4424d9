"""Where a table keeps the state of queries: the keys of its records. The provider's Java writes them. Pure.

A key is a place, which holds what belongs together, and an item of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

GROUP_CHUNKS = 16
"""Chunks that a writer sends together: none comes after a group that is absent as a whole."""

REGISTRATIONS = "queries"
QUERY_ID_DIGITS = "0123456789abcdef"
"""The last characters that the identity of a query can have."""


REQUEST_RECORDS_MAX = 200


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a record."""

    place: str
    item: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One store of one partition of one of a query's operators. As text it is `query/operator/partition/store`."""

    query: str
    operator: int
    partition: int
    store: str

    def __str__(self) -> str:
        return f"{self.query}/{self.operator}/{self.partition}/{self.store}"

    @property
    def floor(self) -> Key:
        """Says below which version all has been removed."""
        return self._at("floor")

    def attempts(self, version: int) -> Key:
        """Names all who began to write a version, or a snapshot of it."""
        return self._at(f"attempts/{_number(version)}")

    def manifest(self, version: int, uid: str | None = None) -> Key:
        """Makes a version visible; those of checkpoint format 2 have the identity of the commit in their key."""
        return self._at(f"version/{_number(version)}" + ("" if uid is None else f"/{uid}"))

    def snapshot(self, version: int, name: str) -> Key:
        """Describes a snapshot of a version."""
        return self._at(snapshot_chunks(version, name))

    def chunk(self, chunks: str, index: int) -> Key:
        """Holds a part of a delta or a snapshot."""
        return self._at(f"{chunks}/{index:06d}")

    def _at(self, item: str) -> Key:
        return Key(str(self), item)


def delta_chunks(version: int, uid: str) -> str:
    """What the items of a delta's chunks begin with."""
    return f"delta/{_number(version)}/{uid}"


def snapshot_chunks(version: int, name: str) -> str:
    """What the items of a snapshot's chunks begin with."""
    return f"snapshot/{_number(version)}/{name}"


def registrations() -> list[Key]:
    """Return the keys of the records that name the queries of a table."""
    return [Key(REGISTRATIONS, item) for item in QUERY_ID_DIGITS]


def registration(query: str) -> Key:
    """Names a query, among others."""
    return Key(REGISTRATIONS, query[-1])


def description(query: str) -> Key:
    """Describes a query."""
    return Key(query, "query")


def runs(query: str) -> Key:
    """Holds the order of a query's runs, which checkpoint format 1 needs."""
    return Key(query, "runs")


def request_parts(keys: Iterable[Key]) -> Iterator[list[Key]]:
    """Yield keys in their order, as many at a time as go into one request."""
    left = iter(keys)
    while part := list(islice(left, REQUEST_RECORDS_MAX)):
        yield part


def _number(version: int) -> str:
    return f"{version:020d}"
