"""Arrays that an update uses as sets: adds elements that they do not contain, and hashes each element once."""

import msgspec

from .values import Json, copied


class ArraySets:
    """The elements of arrays of one value, hashed while one update is applied to the value.

    As long as arrays only grow at their ends, and a new array replaces the whole array, the elements that are already
    hashed stay valid. After an operator that does otherwise, `forget` is called.
    """

    def __init__(self) -> None:
        self._sets: dict[int, _ArraySet] = {}

    def add(self, array: list[Json], elements: list[Json]) -> None:
        """Append copies of the elements that the array does not contain. Equality ignores the order of members."""
        if (known := self._sets.get(id(array))) is None:
            known = self._sets[id(array)] = _ArraySet(array)
        known.add(elements)

    def forget(self) -> None:
        """Forget all elements, after an operator that does not keep them."""
        self._sets.clear()


class _ArraySet:
    """An array, and the elements before `_hashed`. It references the array, so that its id is not used again."""

    def __init__(self, array: list[Json]) -> None:
        self._array = array
        self._elements: set[bytes] = set()
        self._hashed = 0

    def add(self, elements: list[Json]) -> None:
        self._elements.update(map(_identity, self._array[self._hashed :]))
        for element in elements:
            if (identity := _identity(element)) not in self._elements:
                self._elements.add(identity)
                self._array.append(copied(element))
        self._hashed = len(self._array)


_identity = msgspec.json.Encoder(order="sorted").encode
"""Returns text that is the same for two equal elements, ignoring the order of members.

Each result takes only its own length in memory. Results of `orjson` take 4 KiB each.
"""
