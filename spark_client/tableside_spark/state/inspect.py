"""Inspect the query state in a table, with every store, and read a version of it as a DataFrame."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, Self

from tableside_client import Client
from tableside_spark.state import records as layout
from tableside_spark.state.records import Contents, Place, Progress, Query, Records, Snapshot, Version, VersionAttempts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MANIFEST_FIELDS = ("version", "uid", "time", "records", "bytes", "chunks", "base")


class QueryNotFound(LookupError):
    """The table has no state of this query."""

    def __init__(self, table: str, query: str) -> None:
        super().__init__(f"table {table} has no state of query {query}")


class State:
    """The query state in one table.

    If `service` is an address, a client is opened, and `close` closes it. Queries may run at the same time. The results
    are then not from a single moment.
    """

    def __init__(self, service: Client | str, table: str) -> None:
        client = Client(service) if isinstance(service, str) else service
        self._own = client if isinstance(service, str) else None
        self._table = table
        self._records = Records(client, table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client if this object opened it."""
        if self._own is not None:
            self._own.close()

    def queries(self) -> list[Query]:
        """Return the queries with state in the table, ordered by id."""
        named = [
            found
            for found in self._records.get(list(map(layout.registration_key, "0123456789abcdef")))
            if found is not None
        ]
        ids = sorted(query for record in named for query in record)
        described = self._records.get([layout.description_key(query) for query in ids])
        return [Query.from_record(query, record or {}) for query, record in zip(ids, described, strict=True)]

    def query(self, query: str) -> Query:
        """Return a query. Raises `QueryNotFound` if the table has no state of it."""
        registered, description = self._records.get([layout.registration_key(query), layout.description_key(query)])
        if description is None and query not in (registered or {}):
            raise QueryNotFound(self._table, query)
        return Query.from_record(query, description or {})

    def contents(self, place: Place) -> Contents:
        """Return the versions and snapshots of a place."""
        [record] = self._records.get([place.floor])
        floor = 1 if record is None else int(record["version"])
        versions: list[Version] = []
        snapshots: list[Snapshot] = []
        for block in layout.attempt_blocks(self._records, place, floor):
            versions += self._versions(place, block)
            named = [(attempt.version, name) for attempt in block for name in attempt.snapshots]
            described = self._records.get([place.snapshot(*each) for each in named])
            for (version, name), found in zip(named, described, strict=True):
                unfinished = Snapshot(version, name, finished=False)
                snapshots.append(unfinished if found is None else Snapshot.from_record(name, found))
        return Contents(place, floor, tuple(versions), tuple(snapshots))

    def move(self, query: str, checkpoint: str) -> None:
        """Assign a query's state to another copy of its checkpoint. The query must not run.

        The provider does this itself if the previous checkpoint no longer exists.

        Args:
            query: The query's id.
            checkpoint: The directory of the checkpoint from which the query continues.

        Raises:
            QueryNotFound: The table has no state of this query.
        """
        self._records.update(layout.description_key(self.query(query).id), {"$set": {"checkpoint": checkpoint}})

    def delete(self, query: str, tell: Callable[[Progress], object] | None = None) -> int:
        """Remove all records of a query, and return their number.

        The query must not run. An interrupted deletion can be repeated.

        Args:
            query: The query's id.
            tell: A function that receives a `Progress` after each place.

        Raises:
            QueryNotFound: The table has no state of this query.
        """
        removed = 0
        for progress in self._records.delete(self.query(query)):
            if tell is not None and progress.removed > removed:
                tell(progress)
            removed = progress.removed
        # It is registered until the end, so that a repeated deletion finds it.
        self._records.update(layout.registration_key(query), {"$unset": [query]})
        return removed

    def _versions(self, place: Place, block: list[VersionAttempts]) -> Iterator[Version]:
        """Pair each attempt with its manifest: its own, or, in checkpoint format 1, the shared one."""
        keys = [key for attempt in block for key in _manifests(place, attempt)]
        found = dict(zip(keys, self._records.get(keys, MANIFEST_FIELDS), strict=True))
        for attempt in block:
            shared, *own = (found[key] for key in _manifests(place, attempt))
            for uid, manifest in zip(attempt.uids, own, strict=True):
                if manifest is not None:
                    yield Version.from_record(manifest, 2)
                elif shared is not None and shared["uid"] == uid:
                    yield Version.from_record(shared, 1)
                else:
                    yield Version(attempt.version, uid, finished=False)


def _manifests(place: Place, attempt: VersionAttempts) -> list[layout.Key]:
    return [place.manifest(attempt.version), *(place.manifest(attempt.version, uid) for uid in attempt.uids)]


def export(
    spark: "SparkSession",
    checkpoint: str,
    *,
    batch_id: int | None = None,
    operator_id: int = 0,
    store_name: str | None = None,
    join_side: Literal["left", "right"] | None = None,
) -> "DataFrame":
    """Return the state of an operator after a batch.

    The session must be configured for the table with `configure`. Spark reads the provider and the format of the state
    from the query's checkpoint. As many versions exist as `spark.sql.streaming.minBatchesToRetain` keeps.

    Args:
        spark: The session.
        checkpoint: The checkpoint directory of the query.
        batch_id: The number of the batch. Default: the newest.
        operator_id: The number of the operator.
        store_name: For a join, the store to read.
        join_side: For a join, the side to read, in place of `store_name`.

    Returns:
        A DataFrame with the columns `partition_id`, `key` and `value`.

    Raises:
        ValueError: Both `store_name` and `join_side` are given.
    """
    if store_name is not None and join_side is not None:
        raise ValueError("store_name and join_side cannot be combined")
    options = {"batchId": batch_id, "operatorId": operator_id, "storeName": store_name, "joinSide": join_side}
    reader = spark.read.format("statestore")
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(checkpoint)
