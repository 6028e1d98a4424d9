"""The orders of ordered writes, from columns."""

import pyarrow as pa
import pyarrow.compute as pc

DAY_US = 86_400_000_000


def orders(sequence: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return integers unchanged, and dates and timestamps as microseconds since 1970.

    Raises `pa.ArrowInvalid`, a `ValueError`, for a date beyond 64 bits.
    """
    if pa.types.is_date(sequence.type):
        return pc.multiply_checked(sequence.cast(pa.int32()).cast(pa.int64()), DAY_US)
    return sequence.cast(pa.int64())
