"""The keys of a task that have a failed part: their later parts must not overtake it."""

from collections.abc import Sequence

import pyarrow as pa

from tableside_spark.executor.operation_batch import PARTITION
from tableside_spark.executor.texts import comparable


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
