"""Find the attempts to write versions of a place, from its lowest version upwards, with gets only."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tableside_spark.state.key_layout import Place
from tableside_spark.state.records import Records

VERSIONS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class VersionAttempts:
    """The uids of all attempts at a version, and the names of all attempts at its snapshots."""

    version: int
    uids: tuple[str, ...]
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """The attempts at the versions from the end of the previous block up to `end` (exclusive)."""

    attempts: list[VersionAttempts]
    end: int

    @property
    def may_continue(self) -> bool:
        """Whether the last version of the block has attempts, so that there may be more blocks."""
        return self.attempts[-1].version == self.end - 1


def floor_version(floor: Mapping[str, Any] | None) -> int:
    """Return the lowest version that may exist, given the floor record of a place."""
    return 1 if floor is None else int(floor["version"])


def attempt_blocks(records: Records, place: Place, start: int) -> Iterator[Block]:
    """Yield all attempts from a version on, in blocks of versions.

    Versions are started without gaps, so the last block is the first one that is not full. A deletion proceeds upwards,
    and stores the floor before the next block.
    """
    while True:
        versions = range(start, start + VERSIONS_AT_ONCE)
        found = records.get([place.attempts(version) for version in versions])
        attempts = [
            VersionAttempts(version, tuple(attempt.get("uids", ())), tuple(attempt.get("snapshots", ())))
            for version, attempt in zip(versions, found, strict=True)
            if attempt is not None
        ]
        if not attempts:
            return
        block = Block(attempts, versions.stop)
        yield block
        if not block.may_continue:
            return
        start = versions.stop
