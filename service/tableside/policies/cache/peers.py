"""The interface between a cache and the channel that connects it to the caches of other replicas."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ...core import Key

OnKeys = Callable[[Sequence[Key] | None], None]
"""Receives the keys that another replica wrote, or None if it may have written any key."""


class Subscription(Protocol):
    """The subscription of one cache to a channel."""

    def publish(self, keys: Sequence[Key]) -> None:
        """Publish to the other replicas that these keys were written. Return immediately."""
        ...

    async def flushed(self, until: float) -> None:
        """Wait until the channel has accepted all keys published so far, but only shortly. Raise nothing."""
        ...

    def leave(self) -> None:
        """End the subscription."""
        ...


class Peers(Protocol):
    """A channel to all other replicas."""

    def subscribe(
        self, table: str, on_keys: OnKeys, on_lost: Callable[[], None], on_sent: Callable[[int], None]
    ) -> Subscription:
        """Subscribe a cache of the table with this name in its store.

        `on_keys` is called with the keys that other replicas wrote. `on_lost` is called whenever the connection to the
        channel is established (again), because messages may have been missed before. `on_sent` is called with the
        number of keys that were published. All keys of the table count as one.
        """
        ...
