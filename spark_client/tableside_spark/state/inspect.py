"""Look at what a table keeps of queries' state. Reads records one by one, so it works on every store."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tableside_client.client import TableClient
from tableside_spark.state import key_layout, run_attempts
from tableside_spark.state.delete import Progress, Tell, delete_query
from tableside_spark.state.description import Contents, Query, Snapshot, Version
from tableside_spark.state.key_layout import Key, Place
from tableside_spark.state.records import Records
from tableside_spark.state.run_attempts import VersionAttempts

MANIFEST_FIELDS = ("version", "uid", "time", "records", "bytes", "chunks", "base")


class QueryNotFound(LookupError):
    """The table has nothing of a query of that identity."""

    def __init__(self, table: str, query: str) -> None:
        super().__init__(f"table {table} keeps nothing of a query {query}")


class State:
    """What one table keeps. `service` is a client, or an address, for which one is opened and closed with this.

    Queries may run meanwhile: what is read is then as of several moments.
    """

    def __init__(self, service: TableClient | str, table: str) -> None:
        client = TableClient(service) if isinstance(service, str) else service
        self._own = client if isinstance(service, str) else None
        self._table = table
        self._records = Records(client, table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client, if it was opened here."""
        if self._own is not None:
            self._own.close()

    def queries(self) -> list[Query]:
        """Return the queries whose state is in the table, ordered by identity."""
        named = [found for found in self._records.get(key_layout.registrations()) if found is not None]
        return [self._query(query) for query in sorted(query for record in named for query in record)]

    def query(self, query: str) -> Query:
        """Return a query. `QueryNotFound` where the table has nothing of it."""
        registered, described = self._records.get([key_layout.registration(query), key_layout.description(query)])
        if described is None and query not in (registered or {}):
            raise QueryNotFound(self._table, query)
        return Query.from_record(query, described or {})

    def contents(self, place: Place) -> Contents:
        """Return what there is of a store of a partition."""
        [noted] = self._records.get([place.floor])
        floor = run_attempts.floor_version(noted)
        versions: list[Version] = []
        snapshots: list[Snapshot] = []
        for block in run_attempts.attempt_blocks(self._records, place, floor):
            versions += self._versions(place, block.attempts)
            snapshots += self._snapshots(place, block.attempts)
        return Contents(place, floor, tuple(versions), tuple(snapshots))

    def delete(self, query: str, tell: Tell | None = None, *, scan: bool | None = None) -> int:
        """Remove all records of a query, and return how many were found.

        The query must not run. Cut off, it can be called again and goes on. `tell` gets a `Progress` after each
        request that removes anything. `scan` says whether each place is also scanned, for what a writer that was
        believed dead left below the floor; if not given, where the table reads a place without reading others.
        """
        return delete_query(self._records, self.query(query), tell or _ignore_progress, scan=scan)

    def _query(self, query: str) -> Query:
        [described] = self._records.get([key_layout.description(query)])
        return Query.from_record(query, described or {})

    def _versions(self, place: Place, block: list[VersionAttempts]) -> Iterator[Version]:
        """Pair each attempt with its manifest: its own, or, in checkpoint format 1, the one that all share."""
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

    def _snapshots(self, place: Place, block: list[VersionAttempts]) -> Iterator[Snapshot]:
        named = [(attempt.version, name) for attempt in block for name in attempt.snapshots]
        found = self._records.get([place.snapshot(*each) for each in named])
        for (version, name), described in zip(named, found, strict=True):
            yield (
                Snapshot(version, name, finished=False) if described is None else Snapshot.from_record(name, described)
            )


def _manifests(place: Place, attempt: VersionAttempts) -> list[Key]:
    return [place.manifest(attempt.version), *(place.manifest(attempt.version, uid) for uid in attempt.uids)]


def _ignore_progress(progress: Progress) -> None:
    """Tell nobody."""
