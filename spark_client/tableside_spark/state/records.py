"""The records of state, which the Java provider writes: their keys, requests for them, and what they describe."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tableside_client import Client
from tableside_client.errors import TableError

REGISTRATIONS = "queries"


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
        return Key(str(self), "floor")

    def attempts(self, version: int) -> Key:
        """The record of all attempts to write a version, or a snapshot of it."""
        return Key(str(self), f"attempts/{version:020d}")

    def manifest(self, version: int, uid: str | None = None) -> Key:
        """The manifest, which makes a version visible. In checkpoint format 2, its key contains the commit's uid."""
        return Key(str(self), f"version/{version:020d}" + ("" if uid is None else f"/{uid}"))

    def snapshot(self, version: int, name: str) -> Key:
        """The description of a snapshot of a version."""
        return Key(str(self), f"snapshot/{version:020d}/{name}")


def registration_key(query: str) -> Key:
    """The record that registers a query, together with others whose ids have the same last digit."""
    return Key(REGISTRATIONS, query[-1])


def description_key(query: str) -> Key:
    """The description of a query."""
    return Key(query, "query")


@dataclass(frozen=True, slots=True)
class Store:
    """A state store of an operator. Joins have several. `partitions` is the minimum number of its partitions."""

    operator: int
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Query:
    """A query, by the id in its checkpoint. A partly removed one may have no records, or no stores and checkpoint."""

    id: str
    checkpoint: str | None
    created: str | None
    stores: tuple[Store, ...]

    @property
    def operators(self) -> tuple[int, ...]:
        """The numbers of the operators with state, as Spark assigns them."""
        return tuple(sorted({store.operator for store in self.stores}))

    def places(self) -> Iterator[Place]:
        """Yield every store of every partition."""
        for store in self.stores:
            for partition in range(store.partitions):
                yield Place(self.id, store.operator, partition, store.name)

    @classmethod
    def from_record(cls, query: str, described: Mapping[str, Any]) -> Self:
        """Read a query's description record."""
        stores = [
            Store(int(operator), name, int(store["partitions"]))
            for operator, named in described.get("operators", {}).items()
            for name, store in named.items()
        ]
        ordered = tuple(sorted(stores, key=lambda store: (store.operator, store.name)))
        return cls(query, described.get("checkpoint"), described.get("created"), ordered)


@dataclass(frozen=True, slots=True)
class Version:
    """An attempt to commit a version of a place. It can be loaded if `finished` is true.

    An unfinished attempt, in progress or failed, has a number and a uid only. `format` is that of the checkpoint.
    `bytes` and `chunks` are the stored size of the delta. `base` is the version of its snapshot, None for no snapshot.
    """

    number: int
    uid: str
    finished: bool
    format: int | None = None
    time: str | None = None
    records: int = 0
    bytes: int = 0
    chunks: int = 0
    base: int | None = None

    @classmethod
    def from_record(cls, manifest: Mapping[str, Any], checkpoint_format: int) -> Self:
        """Read a manifest record."""
        copied = {name: manifest[name] for name in ("uid", "time", "records", "bytes", "chunks")}
        base = None if manifest["base"] is None else manifest["base"]["version"]
        return cls(manifest["version"], finished=True, format=checkpoint_format, base=base, **copied)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A complete version in one piece, where loading can start. Members are as in `Version`."""

    number: int
    name: str
    finished: bool
    uid: str | None = None
    time: str | None = None
    records: int = 0
    bytes: int = 0
    chunks: int = 0

    @classmethod
    def from_record(cls, name: str, described: Mapping[str, Any]) -> Self:
        """Read a snapshot's description record."""
        copied = {member: described[member] for member in ("uid", "time", "records", "bytes", "chunks")}
        return cls(described["version"], name, finished=True, **copied)


@dataclass(frozen=True, slots=True)
class Contents:
    """The versions and snapshots of a place in ascending order. Everything below `floor` has been removed."""

    place: Place
    floor: int
    versions: tuple[Version, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def latest(self) -> Version | None:
        """The newest version that can be loaded, or any of them if there are several."""
        return next((version for version in reversed(self.versions) if version.finished), None)

    @property
    def unfinished(self) -> int:
        """The number of attempts that are in progress or have failed."""
        versions = sum(not version.finished for version in self.versions)
        return versions + sum(not snapshot.finished for snapshot in self.snapshots)

    @property
    def delta_bytes(self) -> int:
        """The compressed size of the deltas, without unfinished ones, base64 encoding and the store's overhead."""
        return sum(version.bytes for version in self.versions)

    @property
    def snapshot_bytes(self) -> int:
        """The compressed size of the snapshots, like `delta_bytes`."""
        return sum(snapshot.bytes for snapshot in self.snapshots)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a deletion: the place that was removed last, and the number of records removed in all places."""

    place: Place | None
    removed: int


class Records:
    """The records of one table."""

    def __init__(self, client: Client, table: str) -> None:
        self._table = client.table(table)
        self._fields = 0

    def get(self, keys: Sequence[Key], fields: Sequence[str] | None = None) -> list[dict[str, Any] | None]:
        """Return the value of each key in order, limited to `fields`, or None if there is no record."""
        found = self._table.get_many(map(self._stored_key, keys), fields=fields)
        return [found.get(self._stored_key(key)) for key in keys]

    def update(self, key: Key, update: Mapping[str, Any]) -> None:
        """Apply an update, starting from `{}` if there is no record."""
        self._table.update(self._stored_key(key), update, default={})

    def delete(self, query: Query) -> Iterator[Progress]:
        """Delete the records of a query, place by place if keys have two parts. Yield the progress."""
        removed, pair = 0, self._key_fields() == 2
        for place in (*(query.places() if pair else ()), None):
            name = query.id if place is None else str(place)
            removed += self._table.delete_all(partition=name) if pair else self._table.delete_all(prefix=f"{name}/")
            yield Progress(place, removed)

    def _stored_key(self, key: Key) -> str | tuple[str, str]:
        return f"{key.place}/{key.item}" if self._key_fields() == 1 else (key.place, key.item)

    def _key_fields(self) -> int:
        if not self._fields:
            fields = self._table.describe()["key"]
            if len(fields) > 2 or any(field["type"] != "string" for field in fields):
                raise TableError(self._table.name, "unfit_table", 200, "no table for state: its keys are not strings")
            self._fields = len(fields)
        return self._fields


VERSIONS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class VersionAttempts:
    """The uids of all attempts at a version, and the names of all attempts at its snapshots."""

    version: int
    uids: tuple[str, ...]
    snapshots: tuple[str, ...]


def attempt_blocks(records: Records, place: Place, start: int) -> Iterator[list[VersionAttempts]]:
    """Yield all attempts from a version on, in blocks, until one that is not full: versions have no gaps."""
    while True:
        versions = range(start, start + VERSIONS_AT_ONCE)
        found = records.get([place.attempts(version) for version in versions])
        attempts = [
            VersionAttempts(version, tuple(attempt.get("uids", ())), tuple(attempt.get("snapshots", ())))
            for version, attempt in zip(versions, found, strict=True)
            if attempt is not None
        ]
        yield attempts
        if not attempts or attempts[-1].version < versions[-1]:
            return
        start = versions.stop
