"""Values that describe the state of a query in a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tableside_spark.state.records import Place


@dataclass(frozen=True, slots=True)
class Store:
    """A state store of an operator. Joins have several. `partitions` is the minimum number of its partitions."""

    operator: int
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Query:
    """A query, identified by the id in its checkpoint. `created` is RFC 3339.

    A partly removed query may have stores without records, or no stores and no checkpoint.
    """

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

    An unfinished attempt has a number and a uid only: it is in progress or has failed, and maintenance removes its
    records. `format` is the checkpoint format. `bytes` and `chunks` are the stored size of the delta. `base` is the
    version of the snapshot that the version starts from, None for the empty state.
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
