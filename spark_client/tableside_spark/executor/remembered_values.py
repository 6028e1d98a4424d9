"""The values that a task has looked up, so that a key that repeats within a task is requested once."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class RememberedLimits:
    """When a task forgets values.

    Attributes:
        keys_max: The maximum number of keys. A chunk with more keys is not remembered.
        bytes_max: The size of keys and values, as Arrow buffers, after which no keys are added. The values of keys
            that have already been requested may exceed it.
        repeated_min: The part of the keys of chunks that must be known. If it is less when one of the maxima is
            reached, the task remembers nothing from then on, because that costs more than it saves.
    """

    keys_max: int = 50_000
    bytes_max: int = 32 * 1024 * 1024
    repeated_min: float = 0.1


@dataclass(frozen=True, slots=True)
class PlannedKeys:
    """The keys of a chunk: `new` ones, to be requested, and the positions of all of them among the values."""

    new: pa.Array
    _remembered: "tuple[_Generation, pa.Array] | None" = None
    """Where values are remembered, and the position of each key of the chunk there."""

    def values(self, found: pa.RecordBatch, rows: pa.Array | None) -> pa.RecordBatch:
        """Return the value of each row, from the values `found` for the new keys.

        `rows` has the position of each row's key among the keys of the chunk. None means 0, 1, 2, …
        """
        if self._remembered is not None:
            generation, positions = self._remembered
            generation.add(self.new, found)
            if len(self.new) < len(positions):
                return generation.take(positions if rows is None else positions.take(rows))
        return found if rows is None else found.take(rows)


class KeyMemory:
    """Plans the keys of a task's chunks. If it is full, it forgets all values and starts again.

    `plan` is called for each chunk, then `PlannedKeys.values` in the same order, both by one thread.
    """

    def __init__(self, limits: RememberedLimits) -> None:
        self._limits = limits
        self._current: _Generation | None = _Generation()

    def plan(self, keys: pa.Array) -> PlannedKeys:
        """Plan the distinct keys of a chunk."""
        current, limits = self._current, self._limits
        if current is not None and (
            current.size_bytes >= limits.bytes_max or len(current.positions) + len(keys) > limits.keys_max
        ):
            is_useful = current.repeated >= limits.repeated_min * current.planned
            self._current = _Generation() if is_useful else None
        if self._current is None or len(keys) > limits.keys_max:
            return PlannedKeys(keys)
        return self._current.plan(keys)


@dataclass(slots=True)
class _Generation:
    """Values in the order of their keys in the plan: `plan` gives a key its position before its value exists."""

    positions: dict[Hashable, int] = field(default_factory=dict)
    planned: int = 0
    repeated: int = 0
    size_bytes: int = 0
    _values: list[pa.RecordBatch] = field(default_factory=list)

    def plan(self, keys: pa.Array) -> PlannedKeys:
        known, positions = len(self.positions), self.positions
        found = pa.array([positions.setdefault(key, len(positions)) for key in _hashable(keys)], pa.int32())
        new = keys.filter(pc.greater_equal(found, known))
        self.planned += len(keys)
        self.repeated += len(keys) - len(new)
        return PlannedKeys(new, (self, found))

    def add(self, keys: pa.Array, values: pa.RecordBatch) -> None:
        self._values.append(values)
        self.size_bytes += keys.nbytes + values.nbytes

    def take(self, positions: pa.Array) -> pa.RecordBatch:
        if len(self._values) > 1:
            self._values = pa.Table.from_batches(self._values).combine_chunks().to_batches()
        [values] = self._values
        return values.take(positions)


def _hashable(keys: pa.Array) -> Iterator[Hashable]:
    """Return keys as Python values: tuples for composite keys."""
    if pa.types.is_struct(keys.type):
        return zip(*(part.to_pylist() for part in keys.flatten()), strict=True)
    return iter(keys.to_pylist())
