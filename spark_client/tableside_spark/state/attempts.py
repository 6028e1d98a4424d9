"""Who has begun to write which version of a place: found from the lowest version that there may be, by gets alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from tableside_spark.state.layout import Place
from tableside_spark.state.records import Records

VERSIONS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Attempts:
    """The identities of all attempts at one version, and the names of those at snapshots of it."""

    version: int
    uids: tuple[str, ...]
    snapshots: tuple[str, ...]


def floor(records: Records, place: Place) -> int:
    """The lowest version of which there may be something."""
    [found] = records.get([place.floor])
    return 1 if found is None else int(found["version"])


def blocks(records: Records, place: Place, lowest: int) -> Iterator[list[Attempts]]:
    """Yield all attempts from a version on, those at some versions at a time.

    Every version that was begun follows one that was, so they end where a whole block is absent. Removing goes
    upwards by less than a block before the floor follows, so it never makes a gap of that size.
    """
    while True:
        versions = range(lowest, lowest + VERSIONS_AT_ONCE)
        found = records.get([place.attempts(version) for version in versions])
        block = [
            Attempts(version, tuple(attempt.get("uids", ())), tuple(attempt.get("snapshots", ())))
            for version, attempt in zip(versions, found, strict=True)
            if attempt is not None
        ]
        if not block:
            return
        yield block
        lowest = versions.stop
