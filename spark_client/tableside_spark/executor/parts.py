"""The parts of a key with many rows: sent one after the other, each with a token, until one of them fails."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from tableside_spark.executor.key_columns import comparable
from tableside_spark.executor.operation_batch import LATER_PARTS, PARTITION, Token

PARTS_MAX = 2**20
"""The maximum number of parts of a key in one write."""
PART = "~"
"""Separates the name of a writer from the five hexadecimal digits of the derived writer's name."""

_SEQUENCES = 2**43


def part_token(token: Token | None, later_parts: int) -> Token | None:
    """Return the token of a part: that of the write for the last part, a derived one for the parts before it.

    A record remembers one sequence per writer, so the derived sequence combines the write's sequence with the part's
    number. Sequences of 2^43 or more do not leave enough bits: their high bits are in the derived writer's name. It is
    the same for all writes whose sequences differ by less than that, so that a record does not collect writers.
    """
    if token is None or later_parts == 0:
        return token
    if later_parts >= PARTS_MAX:
        raise ValueError(f"the rows of a key exceed {PARTS_MAX} parts: make the write smaller")
    high, low = divmod(token.sequence, _SEQUENCES)
    return Token(f"{token.writer}{PART}{high:05x}", low * PARTS_MAX + PARTS_MAX - 1 - later_parts)


def rounds(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Divide operations into rounds with the same number of later parts.

    Each round must be consumed before the next. A key occurs in a round once, so the order within a round is free.
    """
    for later_parts, pieces in groupby(_pieces(batches), key=itemgetter(0)):
        yield later_parts, map(itemgetter(1), pieces)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        if LATER_PARTS not in batch.schema.names:
            yield 0, batch
            continue
        runs = pc.run_end_encode(pc.max_element_wise(batch.column(LATER_PARTS), 0))
        start = 0
        for later_parts, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield later_parts, batch.slice(start, end - start)
            start = end


class StoppedKeys:
    """Remembers keys with a failed part, and the reason.

    The later parts fail for the same reason. If they were sent, a repetition of the failed part would count as a
    replay, because its sequence is lower.
    """

    def __init__(self, key_columns: Sequence[str]) -> None:
        self._columns = key_columns
        self._reasons: dict[tuple[object, ...], tuple[str, str, bool]] = {}

    def add(self, failed: pa.Table, code: str, detail: str, retriable: str) -> None:
        """Remember the keys of failed operations. The names are those of the columns with the reason."""
        reasons = zip(*(failed[name].to_pylist() for name in (code, detail, retriable)), strict=True)
        self._reasons.update(zip(self._keys(failed), reasons, strict=True))

    def mask(self, operations: pa.Table) -> pa.Array:
        """Return whether the key of each operation is stopped."""
        if not self._reasons:
            return pa.repeat(False, len(operations))
        return pa.array([key in self._reasons for key in self._keys(operations)], pa.bool_())

    def reasons(self, operations: pa.Table) -> list[pa.Array]:
        """Return the codes, the details and the retriable flags of operations on stopped keys."""
        found = [self._reasons[key] for key in self._keys(operations)]
        return [pa.array(column) for column in zip(*found, strict=True)]

    def _keys(self, operations: pa.Table) -> list[tuple[object, ...]]:
        names = [*self._columns, *([PARTITION] if PARTITION in operations.column_names else [])]
        return list(zip(*(comparable(operations[name]) for name in names), strict=True))
