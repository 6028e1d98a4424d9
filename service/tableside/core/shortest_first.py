"""Access to a resource for one caller at a time, in the order of the size of their work."""

import asyncio

OLDEST_EVERY = 4
"""After so many turns, the caller that has waited longest has one, whatever its size."""


class ShortestFirst:
    """Gives turns. Short work does not wait for a queue of long work, and long work is not postponed forever."""

    def __init__(self) -> None:
        self._is_taken = False
        self._count = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def take(self, size_bytes: int) -> None:
        """Wait for a turn for work of this size. Call `give` when it has ended."""
        if not self._is_taken:
            self._is_taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size_bytes
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:  # The turn had just been given.
                self.give()
            raise

    def give(self) -> None:
        """End a turn, and begin the next one."""
        if not self._waiting:
            self._is_taken = False
            return
        self._count += 1
        oldest = self._count % OLDEST_EVERY == 0
        turn = next(iter(self._waiting)) if oldest else min(self._waiting, key=self._waiting.__getitem__)
        del self._waiting[turn]
        turn.set_result(None)
