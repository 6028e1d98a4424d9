"""What a table keeps of a query's state, as values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tableside_spark.state.key_layout import Place


@dataclass(frozen=True, slots=True)
class Store:
    """One of the stores of an operator; joins have several. `partitions` is how many it has at least."""

    operator: int
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Query:
    """A query by its identity, which is in its checkpoint. `created` is RFC 3339.

    One that is half removed has stores that have nothing any more, or neither stores nor a checkpoint.
    """

    id: str
    checkpoint: str | None
    created: str | None
    stores: tuple[Store, ...]

    @property
    def operators(self) -> tuple[int, ...]:
        """The operators that keep state, by the numbers that Spark gives them."""
        return tuple(sorted({store.operator for store in self.stores}))

    def places(self) -> Iterator[Place]:
        """Every store of every partition."""
        for store in self.stores:
            for partition in range(store.partitions):
                yield Place(self.id, store.operator, partition, store.name)

    @classmethod
    def from_record(cls, query: str, described: Mapping[str, Any]) -> Self:
        """Read the record that describes a query."""
        stores = [
            Store(int(operator), name, int(store["partitions"]))
            for operator, named in described.get("operators", {}).items()
            for name, store in named.items()
        ]
        ordered = tuple(sorted(stores, key=lambda store: (store.operator, store.name)))
        return cls(query, described.get("checkpoint"), described.get("created"), ordered)


@dataclass(frozen=True, slots=True)
class Version:
    """An attempt to commit a version of a place, `finished` if it can be loaded.

    Of one that is not, there is a number and an identity only: it is under way, or came to nothing, and cleaning
    removes what there is of it. `format` is that of the checkpoint, `bytes` and `chunks` are those of the delta as
    stored, `base` is the version of the snapshot that it begins with, None for the empty state.
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
        """Read a manifest."""
        base = manifest["base"]
        return cls(
            manifest["version"],
            manifest["uid"],
            finished=True,
            format=checkpoint_format,
            time=manifest["time"],
            records=manifest["records"],
            bytes=manifest["bytes"],
            chunks=manifest["chunks"],
            base=None if base is None else base["version"],
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole version as one piece, which loading can begin with. Members are as those of `Version`."""

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
        """Read what describes a snapshot."""
        return cls(
            described["version"],
            name,
            finished=True,
            uid=described["uid"],
            time=described["time"],
            records=described["records"],
            bytes=described["bytes"],
            chunks=described["chunks"],
        )


@dataclass(frozen=True, slots=True)
class Contents:
    """What there is of one place, in rising order of versions. Below `floor` all has been removed."""

    place: Place
    floor: int
    versions: tuple[Version, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def latest(self) -> Version | None:
        """The newest version that can be loaded: of several with its number, any."""
        return next((version for version in reversed(self.versions) if version.finished), None)

    @property
    def unfinished(self) -> int:
        """How many attempts are under way, or came to nothing."""
        versions = sum(not version.finished for version in self.versions)
        return versions + sum(not snapshot.finished for snapshot in self.snapshots)

    @property
    def delta_bytes(self) -> int:
        """What the deltas take, compressed; not counted are unfinished ones, and base64 and the store's own."""
        return sum(version.bytes for version in self.versions)

    @property
    def snapshot_bytes(self) -> int:
        """What the snapshots take, likewise."""
        return sum(snapshot.bytes for snapshot in self.snapshots)
