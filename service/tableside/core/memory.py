"""What a record remembers of its writes, so that a repeated one or an older one changes nothing."""

import msgspec


class Memory(msgspec.Struct, frozen=True, gc=False):
    """What a record remembers, also after its deletion. It is false if that is nothing.

    `writers` are the last sequence of each writer, the latest last. `orders` is the text of `Orders`, empty without
    ordered writes.
    """

    writers: tuple[tuple[str, int], ...] = ()
    orders: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.writers or self.orders)

    @staticmethod
    def orders_of_all(order: int) -> bytes:
        """Return the text of the orders after a put or a delete of which no member has a higher order."""
        return b'{"":%d}' % order

    @property
    def size_bytes(self) -> int:
        """The size of what may be large."""
        return len(self.orders)


NO_MEMORY = Memory()
