"""Who has begun to write which version of a place: found from the lowest version that there may be, by gets alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tableside_spark.state.key_layout import Place
from tableside_spark.state.records import Records

VERSIONS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class VersionAttempts:
    """The identities of all attempts at one version, and the names of those at snapshots of it."""

    version: int
    uids: tuple[str, ...]
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """The attempts at the versions below `end`, from where the block before ended. `goes_on`: there may be more."""

    attempts: list[VersionAttempts]
    end: int

    @property
    def may_continue(self) -> bool:
        """Whether the block is full to its end."""
        return self.attempts[-1].version == self.end - 1


def floor_version(floor: Mapping[str, Any] | None) -> int:
    """The lowest version of which there may be something, of a place whose floor is noted so."""
    return 1 if floor is None else int(floor["version"])


def attempt_blocks(records: Records, place: Place, start: int) -> Iterator[Block]:
    """Yield all attempts from a version on, those at some versions at a time.

    Every version that was begun follows one that was, so they end where a block is not full to its end. Who removes
    them goes upwards, and notes a floor before going on to the next block.
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
