"""Tokens that were verified already, by their digests: what makes the next request with one as cheap as any other.

As many as there is room for, the one that was not seen for longest goes first; and each until it expires.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

REMEMBERED_MAX = 10_000

Found = TypeVar("Found")


class Remembered(Generic[Found]):
    """What was found of each token, by its digest. `clock` is the one on the wall, which tokens expire by."""

    def __init__(self, clock: Callable[[], float], count_max: int = REMEMBERED_MAX) -> None:
        self._clock = clock
        self._count_max = count_max
        self._found: OrderedDict[bytes, tuple[Found, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, digest: bytes) -> Found | None:
        """Return what was found of a token that has not expired."""
        if (entry := self._found.get(digest)) is None:
            return None
        found, until = entry
        if self._clock() >= until:
            del self._found[digest]
            return None
        self._found.move_to_end(digest)
        return found

    def keep(self, digest: bytes, found: Found, until: float) -> None:
        """Remember a token until it expires, or there is no room."""
        self._found[digest] = found, until
        if len(self._found) > self._count_max:
            self._found.popitem(last=False)

    def forget(self) -> None:
        """Forget all of them."""
        self._found.clear()
