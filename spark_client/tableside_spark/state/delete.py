"""Remove all that a table keeps of a query. Cut off anywhere, it is done again and finishes what was left."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tableside_spark.state import key_layout, run_attempts
from tableside_spark.state.description import Query
from tableside_spark.state.key_layout import GROUP_CHUNKS, Key, Place
from tableside_spark.state.records import Records
from tableside_spark.state.run_attempts import VersionAttempts

GROUPS_AT_ONCE = 12


@dataclass(frozen=True, slots=True)
class Progress:
    """How far removing has come: where it is, and how many records it has removed so far, there and elsewhere."""

    place: Place | None
    removed: int


@dataclass(frozen=True, slots=True)
class _ChunkSeries:
    """Chunks that belong together: what their items begin with, and how many there are at least."""

    place: Place
    prefix: str
    chunks_min: int

    def keys(self, start: int, end: int) -> list[Key]:
        return [self.place.chunk(self.prefix, index) for index in range(start, end)]


Tell = Callable[[Progress], None]
_Metadata = Mapping[Key, Mapping[str, Any] | None]


def delete_query(records: Records, query: Query, tell: Tell, *, scan: bool | None) -> int:
    """Remove a query's places, then what describes it, and at last its name among the others."""
    removal = _Deletion(records, tell, records.scans_in_order() if scan is None else scan)
    for place in query.places():
        removal.remove_place(place)
    removal.remove_rest([key_layout.runs(query.id), key_layout.description(query.id)])
    name = key_layout.registration(query.id)
    if query.id in (records.get([name])[0] or {}):
        records.update(name, {"$unset": [query.id]})
    return removal.removed


class _Deletion:
    """One run of removing, and its count."""

    def __init__(self, records: Records, tell: Tell, scan: bool) -> None:
        self._records = records
        self._tell = tell
        self._scan = scan
        self._place: Place | None = None
        self.removed = 0

    def remove_place(self, place: Place) -> None:
        """Remove a place from its lowest version up. The floor follows, and goes last."""
        self._place = place
        [noted] = self._records.get([place.floor])
        for block in run_attempts.attempt_blocks(self._records, place, run_attempts.floor_version(noted)):
            self._remove_block(place, block.attempts)
            if block.may_continue:
                self._records.update(place.floor, {"$max": {"version": block.end}})
        if self._scan:
            for keys in self._records.scan(str(place)):
                self._remove(key for key in keys if key != place.floor)
        self._records.delete([place.floor])
        self._count(0 if noted is None else 1)

    def remove_rest(self, keys: Sequence[Key]) -> None:
        """Remove what belongs to no place."""
        self._place = None
        self._remove_present(keys)

    def _remove_block(self, place: Place, block: Sequence[VersionAttempts]) -> None:
        """Remove what was attempted, and last what tells of it: so whoever is cut off finds the rest again."""
        keys = _metadata_keys(place, block)
        described = dict(zip(keys, self._records.get(keys, ("uid", "chunks")), strict=True))
        pieces = [_delta(place, attempt.version, uid, described) for attempt in block for uid in attempt.uids]
        pieces += [
            _snapshot(place, attempt.version, name, described) for attempt in block for name in attempt.snapshots
        ]
        # The last chunks first: those that are left are still found from the first one on.
        self._remove(sorted(self._chunks(pieces), key=lambda key: key.item.rpartition("/")[2], reverse=True))
        self._remove(key for key, value in described.items() if value is not None)
        self._remove(place.attempts(attempt.version) for attempt in block)

    def _chunks(self, pieces: Sequence[_ChunkSeries]) -> list[Key]:
        """Return the chunks that are there: as many as are described, and on from there while there are any."""
        present: list[Key] = []
        open_pieces = {piece: (0, piece.chunks_min + GROUP_CHUNKS) for piece in pieces}
        while open_pieces:
            asked = {piece: piece.keys(*span) for piece, span in open_pieces.items()}
            keys = [key for each in asked.values() for key in each]
            values = self._records.get(keys, ("crc",))
            found = {key for key, value in zip(keys, values, strict=True) if value is not None}
            present += found
            open_pieces = {
                piece: (open_pieces[piece][1], open_pieces[piece][1] + GROUP_CHUNKS * GROUPS_AT_ONCE)
                for piece, each in asked.items()
                if not found.isdisjoint(each[-GROUP_CHUNKS:])
            }
        return present

    def _remove_present(self, keys: Sequence[Key]) -> None:
        found = self._records.get(keys)
        self._remove(key for key, value in zip(keys, found, strict=True) if value is not None)

    def _remove(self, keys: Iterable[Key]) -> None:
        for part in key_layout.request_parts(keys):
            self._records.delete(part)
            self._count(len(part))

    def _count(self, removed: int) -> None:
        self.removed += removed
        if removed:
            self._tell(Progress(self._place, self.removed))


def _metadata_keys(place: Place, block: Sequence[VersionAttempts]) -> list[Key]:
    """Return the keys of all manifests and descriptions of snapshots that attempts may have written."""
    keys = [place.manifest(attempt.version, uid) for attempt in block for uid in (None, *attempt.uids)]
    return keys + [place.snapshot(attempt.version, name) for attempt in block for name in attempt.snapshots]


def _delta(place: Place, version: int, uid: str, described: _Metadata) -> _ChunkSeries:
    manifests = [described[place.manifest(version, uid)], described[place.manifest(version)]]
    own = [manifest["chunks"] for manifest in manifests if manifest is not None and manifest["uid"] == uid]
    return _ChunkSeries(place, key_layout.delta_chunks(version, uid), max(own, default=0))


def _snapshot(place: Place, version: int, name: str, described: _Metadata) -> _ChunkSeries:
    description = described[place.snapshot(version, name)]
    return _ChunkSeries(
        place, key_layout.snapshot_chunks(version, name), 0 if description is None else description["chunks"]
    )
