"""Remove the state of a query. An interrupted deletion can be repeated, and removes the rest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tableside_spark.state import records as layout
from tableside_spark.state.records import GROUP_CHUNKS, Key, Place, Query, Records, VersionAttempts

GROUPS_AT_ONCE = 12


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a deletion: the current place, and the number of records removed so far in all places."""

    place: Place | None
    removed: int


@dataclass(frozen=True, slots=True)
class _ChunkSeries:
    """The chunks of a delta or snapshot: the prefix of their items, and their minimum number."""

    place: Place
    prefix: str
    chunks_min: int

    def keys(self, start: int, end: int) -> list[Key]:
        return [self.place.chunk(self.prefix, index) for index in range(start, end)]


ReportProgress = Callable[[Progress], None]
_Metadata = Mapping[Key, Mapping[str, Any] | None]


def delete_query(records: Records, query: Query, report: ReportProgress, *, scan: bool | None) -> int:
    """Remove a query's places, then its description, and finally its registration."""
    removal = _Deletion(records, report, records.scans_in_order() if scan is None else scan)
    for place in query.places():
        removal.remove_place(place)
    removal.remove_present([layout.runs_key(query.id), layout.description_key(query.id)])
    name = layout.registration_key(query.id)
    if query.id in (records.get([name])[0] or {}):
        records.update(name, {"$unset": [query.id]})
    return removal.removed


class _Deletion:
    """A deletion in progress, and its count."""

    def __init__(self, records: Records, report: ReportProgress, scan: bool) -> None:
        self._records = records
        self._report = report
        self._scan = scan
        self._place: Place | None = None
        self.removed = 0

    def remove_place(self, place: Place) -> None:
        """Remove a place from its lowest version upwards. The floor record rises with it, and is removed last."""
        self._place = place
        [floor] = self._records.get([place.floor])
        for block in layout.attempt_blocks(self._records, place, layout.floor_version(floor)):
            self._remove_block(place, block.attempts)
            if block.may_continue:
                self._records.update(place.floor, {"$max": {"version": block.end}})
        if self._scan:
            for keys in self._records.scan(str(place)):
                self._remove(key for key in keys if key != place.floor)
        self._records.delete([place.floor])
        self._count(0 if floor is None else 1)

    def remove_present(self, keys: Sequence[Key]) -> None:
        """Remove the existing ones of some records that do not belong to a place."""
        self._place = None
        found = self._records.get(keys)
        self._remove(key for key, value in zip(keys, found, strict=True) if value is not None)

    def _remove_block(self, place: Place, block: Sequence[VersionAttempts]) -> None:
        """Remove the data of attempts, then the records that list them: a repeated deletion then finds the rest."""
        keys = [place.manifest(attempt.version, uid) for attempt in block for uid in (None, *attempt.uids)]
        keys += [place.snapshot(attempt.version, name) for attempt in block for name in attempt.snapshots]
        metadata = dict(zip(keys, self._records.get(keys, ("uid", "chunks")), strict=True))
        pieces = [_delta(place, attempt.version, uid, metadata) for attempt in block for uid in attempt.uids]
        pieces += [_snapshot(place, attempt.version, name, metadata) for attempt in block for name in attempt.snapshots]
        # The last chunks first: a repeated deletion finds the remaining ones from the first chunk on.
        self._remove(sorted(self._chunks(pieces), key=lambda key: key.item.rpartition("/")[2], reverse=True))
        self._remove(key for key, value in metadata.items() if value is not None)
        self._remove(place.attempts(attempt.version) for attempt in block)

    def _chunks(self, pieces: Sequence[_ChunkSeries]) -> list[Key]:
        """Return the existing chunks: as many as the metadata states, and all that follow without a gap."""
        present: list[Key] = []
        open_pieces = {piece: (0, piece.chunks_min + GROUP_CHUNKS) for piece in pieces}
        while open_pieces:
            keys_of = {piece: piece.keys(*span) for piece, span in open_pieces.items()}
            keys = [key for each in keys_of.values() for key in each]
            values = self._records.get(keys, ("crc",))
            found = {key for key, value in zip(keys, values, strict=True) if value is not None}
            present += found
            open_pieces = {
                piece: (open_pieces[piece][1], open_pieces[piece][1] + GROUP_CHUNKS * GROUPS_AT_ONCE)
                for piece, each in keys_of.items()
                if not found.isdisjoint(each[-GROUP_CHUNKS:])
            }
        return present

    def _remove(self, keys: Iterable[Key]) -> None:
        for part in layout.request_parts(keys):
            self._records.delete(part)
            self._count(len(part))

    def _count(self, removed: int) -> None:
        self.removed += removed
        if removed:
            self._report(Progress(self._place, self.removed))


def _delta(place: Place, version: int, uid: str, metadata: _Metadata) -> _ChunkSeries:
    manifests = [metadata[place.manifest(version, uid)], metadata[place.manifest(version)]]
    own = [manifest["chunks"] for manifest in manifests if manifest is not None and manifest["uid"] == uid]
    return _ChunkSeries(place, layout.delta_chunks(version, uid), max(own, default=0))


def _snapshot(place: Place, version: int, name: str, metadata: _Metadata) -> _ChunkSeries:
    description = metadata[place.snapshot(version, name)]
    chunks = 0 if description is None else description["chunks"]
    return _ChunkSeries(place, layout.snapshot_chunks(version, name), chunks)
