"""Contract tests: expiry of records."""

import pytest

from tableside.core.errors import RecordNotFound
from tableside.core.operations import NO_EXPIRY, Get, Operation
from tableside.core.store import Store

from .opening import Open, Opens, Time, needs
from .words import one, put, record, refused, same, scanned, update, value, written

CHANGES = pytest.mark.parametrize("change", [{}, {"$set": {"n": 1}}], ids=["nothing", "a member"])


class Expiry(Opens):
    """A record expires at the time that its write or its table sets, and an expired record is absent."""

    async def test_a_record_is_absent_from_the_moment_it_expires(self, store: Store, time: Time) -> None:
        await written(store, put("a", {"n": 1}, ttl_s=1))
        await time.passes_within_lifetime(0.5)
        assert same(await value(store, "a"), {"n": 1})
        await time.passes(0.5)
        assert await one(store, Get("a")) is None
        assert refused(await one(store, update("a", {"n": 2})), RecordNotFound)
        assert await one(store, Get("a")) is None

    async def test_reads_and_writes_return_the_expiry(self, store: Store, time: Time) -> None:
        around = time.now_ms() + 60_000
        acknowledged = await written(store, put("a", {}, ttl_s=60))
        assert abs(acknowledged.expires_ms - around) <= 2000
        assert (await record(store, "a")).expires_ms == acknowledged.expires_ms
        changed = await written(store, update("a", {"n": 1}, returning=True))
        assert changed.expires_ms == acknowledged.expires_ms

    async def test_a_put_replaces_the_expiry(self, store: Store, time: Time) -> None:
        await written(store, put("a", {"n": 1}, ttl_s=time.short_s))
        await written(store, put("a", {"n": 2}))
        await time.passes(2 * time.short_s)
        assert same(await value(store, "a"), {"n": 2})
        assert (await record(store, "a")).expires_ms == 0

    async def test_an_update_keeps_expiry(self, store: Store, time: Time) -> None:
        expires_ms = (await written(store, put("a", {"n": 1}, ttl_s=1))).expires_ms
        await time.passes_within_lifetime(0.5)
        await written(store, update("a", {"n": 2}))
        assert (await record(store, "a")).expires_ms == expires_ms
        await time.passes(0.5)
        assert await one(store, Get("a")) is None

    @CHANGES
    async def test_an_update_with_a_ttl_sets_expiry(self, store: Store, time: Time, change: object) -> None:
        await store.apply([put("a", {}, ttl_s=1), put("b", {}), put("c", {}, ttl_s=1)])
        await store.apply(
            [
                update("a", change, ttl_s=3600),
                update("b", change, ttl_s=1),
                update("c", change, ttl_s=NO_EXPIRY),
                put("d", {}, ttl_s=1),
            ]
        )
        await time.passes(1.0)
        assert abs((await record(store, "a")).expires_ms - time.now_ms() - 3_600_000) <= 5000
        assert await one(store, Get("b")) is None
        assert (await record(store, "c")).expires_ms == 0
        assert await one(store, Get("d")) is None

    @CHANGES
    async def test_the_tables_default_applies_without_a_ttl(self, open_store: Open, time: Time, change: object) -> None:
        store = await open_store(ttl_s=100)
        needs(store, "ttl")
        made: list[Operation] = [
            put("put", {}),
            put("never", {}, ttl_s=NO_EXPIRY),
            put("own", {}, ttl_s=1000),
            update("default", change, {}),
            update("default own", change, {}, ttl_s=1000),
            update("default never", change, {}, ttl_s=NO_EXPIRY),
        ]
        await store.apply(made)
        await written(store, update("never", {"n": 1}))
        wanted = {"put": 100, "never": None, "own": 1000, "default": 100, "default own": 1000, "default never": None}
        for key, ttl_s in wanted.items():
            expires_ms = (await record(store, key)).expires_ms
            assert (expires_ms == 0) == (ttl_s is None), key
            assert ttl_s is None or abs(expires_ms - time.now_ms() - ttl_s * 1000) <= 5000

    async def test_an_expired_record_starts_from_the_default_again(self, store: Store, time: Time) -> None:
        await written(store, put("a", {"n": 50}, ttl_s=time.short_s))
        await time.passes(time.short_s)
        assert (await written(store, update("a", {"$inc": {"n": 1}}, {"n": 0}))).created
        assert same(await value(store, "a"), {"n": 1})
        assert (await record(store, "a")).expires_ms == 0

    async def test_an_expired_record_is_not_in_scans(self, store: Store, time: Time) -> None:
        await store.apply([put(f"{index}", {}, ttl_s=3 if index % 2 else None) for index in range(20)])
        assert len(await scanned(store)) == 20
        await time.passes(3.0)
        assert sorted(map(str, await scanned(store))) == sorted(str(index) for index in range(0, 20, 2))
        assert sorted(map(str, await scanned(store, limit=1))) == sorted(str(index) for index in range(0, 20, 2))

    async def test_a_very_long_time_is_no_expiry(self, store: Store) -> None:
        await written(store, put("a", {"n": 1}, ttl_s=1e15))
        assert same(await value(store, "a"), {"n": 1})

    async def test_a_fraction_of_a_second_is_a_time_to_live(self, store: Store, time: Time) -> None:
        await written(store, put("a", {}, ttl_s=0.5))
        await time.passes(1.0)
        assert await one(store, Get("a")) is None
