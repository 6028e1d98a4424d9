"""Contract tests: scans in pages, and splits of a table."""

import contextlib
from collections import Counter

import msgspec
import pytest

from tableside.core import values
from tableside.core.errors import InvalidOperation, MalformedRequest
from tableside.core.keys import KeySchema
from tableside.core.operations import Delete, Key
from tableside.core.store import Page, Scan

from .opening import Open, needs
from .partitions import PartitionScans
from .words import COMPOSITE, INTEGERS, UNUSUAL_KEYS, distinct_keys, one, pages, put, record, same, scanned, written

FORGED = [
    *(b"", b"junk", b"[]", b"{}", b"[1]", b'[""]', b'["a","b"]', b'["99999"]', b'["0-5","","",-1]', b"\xff"),
    *(b"1", b"3/3", b"-1/3", b"a/b", b"0/0", b"0/9999999", b'["' + b"x" * 5000 + b'"]'),
]
"""Texts that a caller may have made up instead of the position of a page or a split."""


class Scans(PartitionScans):
    """A scan returns every record, in pages of bounded size. Splits divide a table."""

    async def test_a_scan_of_nothing_has_no_records(self, open_store: Open) -> None:
        """It is one page, unless the store ends a page after some time, as that of a busy cluster."""
        store = await open_store()
        *others, last = await pages(store, Scan(10))
        assert last == Page([], None)
        assert not any(page.records for page in others)
        assert not (others and store.capabilities.sorted_scan)

    async def test_pages_contain_every_record_once(self, open_store: Open) -> None:
        keys = [f"{index * 7919 % 101:03}" for index in range(101)]
        store = await self.filled(open_store, keys)
        for limit in (1, 7, 100, 101, 102, 10_000):
            found = await pages(store, Scan(limit))
            assert all(len(page.records) <= limit for page in found)
            met = [key for page in found for key, _ in page.records]
            assert distinct_keys(met, store) == sorted(keys)
            if store.capabilities.sorted_scan:
                assert met == sorted(keys)

    async def test_a_scan_returns_the_same_records_as_gets(self, open_store: Open) -> None:
        store = await open_store()
        ttls = (None, 100) if store.capabilities.ttl else (None,)
        await store.apply([put(f"{index}", {"n": index}, ttl_s=ttls[index % len(ttls)]) for index in range(10)])
        records = [each for page in await pages(store, Scan(100)) for each in page.records]
        assert {key for key, _ in records} == {f"{index}" for index in range(10)}
        for key, found in records:
            gotten = await record(store, key)
            assert (found.etag, found.expires_ms) == (gotten.etag, gotten.expires_ms)
            assert same(values.decode(found.value), values.decode(gotten.value))

    async def test_keys_are_scanned_in_the_order_of_their_bytes(self, open_store: Open) -> None:
        store = await self.filled(open_store, UNUSUAL_KEYS)
        needs(store, "sorted_scan")
        assert await scanned(store, limit=3) == sorted(UNUSUAL_KEYS, key=lambda key: key.encode())

    async def test_a_prefix_limits_a_scan(self, open_store: Open) -> None:
        keys = ["a", "ab", "abc", "abd", "ac", "b", "A", "a\x7f", "aü", "aÿ", "\U0010ffff", "\U0010ffffx"]
        store = await self.filled(open_store, keys)
        needs(store, "prefix_scan")
        for prefix in ("", "a", "ab", "abc", "abcd", "x", "ü", "aü", "\U0010ffff", "A"):
            met = await scanned(store, prefix=prefix, limit=2)
            assert distinct_keys(met, store) == sorted(key for key in keys if key.startswith(prefix)), prefix

    async def test_a_prefix_contains_only_what_keys_may_contain(self, open_store: Open) -> None:
        store = await open_store(COMPOSITE)
        needs(store, "prefix_scan")
        await written(store, put(("a", 1)))
        with pytest.raises(InvalidOperation):
            await store.scan(Scan(5, prefix="a\0"))

    async def test_a_page_is_limited_in_bytes(self, open_store: Open) -> None:
        store = await open_store()
        await store.apply([put(f"{index:02}", {"long": "x" * 1000}) for index in range(40)])
        found = await pages(store, Scan(1000, bytes_max=5000))
        assert len(found) >= 6
        assert all(sum(len(one_found.value) for _, one_found in page.records) <= 5000 + 1100 for page in found)
        # A scan may return a record twice, for example while Redis resizes its hash table.
        times = Counter(str(key) for page in found for key, _ in page.records)
        assert times.keys() == {f"{index:02}" for index in range(40)}
        assert max(times.values()) <= 2

    async def test_a_forged_position_or_split_is_malformed_or_another_place(self, open_store: Open) -> None:
        store = await self.filled(open_store, ["a", "b", "c"])
        for text in FORGED:
            for scan in (Scan(10, position=text), Scan(10, split=text)):
                with contextlib.suppress(MalformedRequest):
                    assert {key for key, _ in (await store.scan(scan)).records} <= {"a", "b", "c"}

    async def test_a_scan_returns_a_stable_record_while_others_change(self, open_store: Open) -> None:
        staying = [f"{index:03}" for index in range(0, 100, 2)]
        store = await self.filled(open_store, staying)
        met: list[Key] = []
        scan = Scan(5)
        for turn in range(1000):
            page = await store.scan(scan)
            met += [key for key, _ in page.records]
            if page.position is None:
                break
            await one(store, put(f"{(turn * 37) % 100 // 2 * 2 + 1:03}"))
            await one(store, Delete(f"{(turn * 11) % 100 // 2 * 2 + 1:03}"))
            scan = msgspec.structs.replace(scan, position=page.position)
        assert set(staying) <= set(met)

    async def test_splits_are_disjoint_and_cover_the_table(self, open_store: Open) -> None:
        keys = [f"user-{index * 7919 % 1000:04}" for index in range(1000)]
        store = await self.filled(open_store, keys)
        needs(store, "splits")
        divisions = {count_max: await store.splits(count_max) for count_max in (1, 2, 3, 8, 64)}
        for count_max, parts in divisions.items():
            assert 1 <= len(parts) <= count_max
            assert len(set(parts)) == len(parts)
            if self.splits_have_several_parts and count_max > 1:
                assert len(parts) > 1, count_max
            met = [key for part in parts for key in await scanned(store, split=part, limit=97)]
            assert distinct_keys(met, store) == sorted(keys), count_max
        later = ["a", "user", "user-0500x", "user-9999", "zzz", "\U0010ffff"]
        await store.apply([put(key) for key in later])
        for count_max, parts in divisions.items():
            met = [key for part in parts for key in await scanned(store, split=part, limit=97)]
            assert distinct_keys(met, store) == sorted(keys + later), count_max

    async def test_splits_of_few_records_cover_them(self, open_store: Open) -> None:
        store = await open_store()
        needs(store, "splits")
        for keys in ([], ["a"], ["a", "b"], ["a", "a\x01", "aa"], ["x" * 1024, "x" * 1023]):
            await store.apply([put(key) for key in keys])
            parts = await store.splits(8)
            assert 1 <= len(parts) <= 8
            met = [key for part in parts for key in distinct_keys(await scanned(store, split=part), store)]
            assert sorted(met) == sorted(keys)
            await store.apply([Delete(key) for key in keys])

    @pytest.mark.parametrize("schema", [INTEGERS, COMPOSITE], ids=["integers", "composite"])
    async def test_splits_of_other_keys_cover_them(self, open_store: Open, schema: KeySchema) -> None:
        numbers = [*range(-300, 300), 2**63 - 1, -(2**63)]
        keys: list[Key] = [number if schema is INTEGERS else (f"u{number % 3}", number) for number in numbers]
        store = await self.filled(open_store, keys, schema)
        needs(store, "splits")
        met = [key for part in await store.splits(5) for key in await scanned(store, split=part, limit=100)]
        assert len(distinct_keys(met, store)) == len(keys)
        assert set(met) == set(keys)

    async def test_a_split_can_be_limited_by_a_prefix(self, open_store: Open) -> None:
        keys = [f"{letter}{index:02}" for letter in "abc" for index in range(50)]
        store = await self.filled(open_store, keys)
        needs(store, "splits", "prefix_scan")
        parts = await store.splits(4)
        met = [key for part in parts for key in await scanned(store, split=part, prefix="b", limit=11)]
        assert distinct_keys(met, store) == [key for key in keys if key.startswith("b")]
