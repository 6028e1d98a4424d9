"""A cache of verified tokens, keyed by their digests, so that each signature is verified only once.

Entries expire with their tokens. If the cache is full, the least recently used entry is evicted.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

TOKENS_CACHED_MAX = 10_000

Result = TypeVar("Result")


class TokenCache(Generic[Result]):
    """The result of verifying each token, by the token's digest. `clock` returns wall-clock Unix seconds."""

    def __init__(self, clock: Callable[[], float], count_max: int = TOKENS_CACHED_MAX) -> None:
        self._clock = clock
        self._count_max = count_max
        self._entries: OrderedDict[bytes, tuple[Result, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes) -> Result | None:
        """Return the result for a token that has not expired, or None."""
        if (entry := self._entries.get(digest)) is None:
            return None
        result, expires_at = entry
        if self._clock() >= expires_at:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return result

    def put(self, digest: bytes, result: Result, expires_at: float) -> None:
        """Cache the result for a token until it expires or is evicted."""
        self._entries[digest] = result, expires_at
        if len(self._entries) > self._count_max:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
