"""What a cache needs in order to tell other replicas what was written, and to hear it from them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ...core import Key

OnKeys = Callable[[Sequence[Key] | None], None]
"""Takes the keys that another replica wrote; None is that it may have written any."""


class Subscription(Protocol):
    """One cache's part in a channel."""

    def publish(self, keys: Sequence[Key]) -> None:
        """Have the other replicas hear that these keys were written; returns at once."""
        ...

    async def flushed(self, until: float) -> None:
        """Return when the channel has taken what was told so far, or shortly after if it does not; raise nothing."""
        ...

    def leave(self) -> None:
        """Hear nothing more."""
        ...


class Peers(Protocol):
    """The other replicas, by a channel to all of them."""

    def subscribe(
        self, table: str, on_keys: OnKeys, on_lost: Callable[[], None], on_sent: Callable[[int], None]
    ) -> Subscription:
        """Take part as a cache of the table that has this name in its store.

        `on_keys` is called with what others wrote; `on_lost` when they can be heard (again), after a time in which
        something may have been missed; `on_sent` with the number of keys that were sent, 1 standing for all.
        """
        ...
