"""Every input for a table."""

from collections.abc import Iterator

from hostile.bounds import Bounds
from hostile.costly import Input, singles
from hostile.costly_arrow import arrow
from hostile.costly_batches import batches
from hostile.costly_largest import of_largest
from hostile.costly_reads import heads, pages, scans

__all__ = ["every", "of_largest", "of_store"]


def every(bounds: Bounds) -> Iterator[Input]:
    """Return every input."""
    for make in (singles, batches, arrow, scans, heads, pages):
        yield from make(bounds)


def of_store(bounds: Bounds) -> Iterator[Input]:
    """Return the inputs whose cost may differ between stores, without inputs that never reach a store."""
    for make in (singles, batches, scans):
        yield from (one for one in make(bounds) if not one.name.startswith(_REFUSED))


_REFUSED = ("batch of too", "batch without", "PATCH $push, $each", "PATCH array, ")
