"""Contract tests: scans of one partition of a table with a composite key."""

from collections.abc import Sequence

import pytest

from tableside.core.keys import KeyField, KeySchema, PartType
from tableside.core.operations import Delete, Key, Part
from tableside.core.store import Store

from .opening import Open, Opens, needs
from .words import COMPOSITE, STRINGS, UNUSUAL_KEYS, put, scanned

_INTEGERS = [-(2**63), -(2**53) - 1, -256, -10, -9, -1, 0, 9, 10, 255, 256, 2**53 + 1, 2**63 - 1]
_TEXTS = sorted({*UNUSUAL_KEYS, "aa", "a:", "a\x01", "a!", "ab", "}"}, key=str.encode)
_FEW_TEXTS = ["\x01", "a", "a\x01", "a!", "ab", "ü", "\U0010ffff"]
SORT_KEYS: dict[str, tuple[tuple[PartType, ...], list[tuple[Part, ...]]]] = {
    "integer": (("integer",), [(n,) for n in _INTEGERS]),
    "string": (("string",), [(text,) for text in _TEXTS]),
    "string, integer": (("string", "integer"), [(text, n) for text in _FEW_TEXTS for n in (-(2**63), -1, 0, 5)]),
    "integer, string": (("integer", "string"), [(n, text) for n in (-256, -1, 0, 255) for text in _FEW_TEXTS]),
    "string, string": (("string", "string"), [(text, last) for text in _FEW_TEXTS for last in _FEW_TEXTS]),
}
"""The types of the parts of a key after the first, and such parts in order."""


class PartitionScans(Opens):
    """A scan of one partition returns its records, in sort order."""

    @staticmethod
    async def filled(open_store: Open, keys: Sequence[Key], key: KeySchema = STRINGS) -> Store:
        store = await open_store(key=key)
        await store.apply([put(one_key, {"i": index}) for index, one_key in enumerate(keys)])
        return store

    async def test_a_partition_limits_a_scan(self, open_store: Open) -> None:
        keys: list[Key] = [(user, day) for user in ("u", "u1", "ü", "a") for day in (-5, 10, 9, 0)]
        store = await self.filled(open_store, keys, COMPOSITE)
        for user in ("u", "u1", "ü", "nobody"):
            met = await scanned(store, partition=user, limit=3)
            assert set(met) == {key for key in keys if key[0] == user}  # type: ignore[index]  # composite
            if self.partitions_are_sorted:
                assert met == sorted(met)

    @pytest.mark.parametrize("parts", [*SORT_KEYS])
    async def test_a_partition_is_scanned_in_sort_order(self, open_store: Open, parts: str) -> None:
        kinds, ordered = SORT_KEYS[parts]
        if 1 + len(kinds) > self.key_parts_max:
            pytest.skip("the store's keys have fewer parts")
        schema = KeySchema((KeyField("p", "string"), *(KeyField(f"k{at}", kind) for at, kind in enumerate(kinds))))
        keys: list[Key] = [(partition, *rest) for partition in ("a", "a:", "{b}") for rest in ordered]
        store = await self.filled(open_store, keys[1::2] + keys[::2], schema)
        for partition in ("a", "a:", "{b}"):
            for limit in (1, 4, 1000):
                met = await scanned(store, partition=partition, limit=limit)
                if not self.partitions_are_sorted:  # Such a scan may return a record twice.
                    met = sorted(set(met), key=keys.index)
                assert met == [(partition, *rest) for rest in ordered]
        await store.apply([Delete(key) for key in keys[::2]])
        assert set(await scanned(store, partition="a")) == {key for key in keys[1::2] if key[0] == "a"}  # type: ignore[index]  # composite

    async def test_a_prefix_and_a_partition_together_limit_a_scan(self, open_store: Open) -> None:
        schema = KeySchema((KeyField("n", "integer"), KeyField("s", "string")))
        keys: list[Key] = [(n, s) for n in (-1, 0, 255, 2**63 - 1) for s in ("a", "ab", "b")]
        store = await self.filled(open_store, keys, schema)
        needs(store, "prefix_scan")
        for n in (-1, 0, 255, 2**63 - 1, 7):
            for prefix in ("", "a", "ab", "c"):
                met = await scanned(store, partition=n, prefix=prefix, limit=2)
                assert not self.partitions_are_sorted or met == sorted(met)
                assert set(met) == {key for key in keys if key[0] == n and key[1].startswith(prefix)}  # type: ignore[index,union-attr]  # composite
