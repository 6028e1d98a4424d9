"""With `writes: through` the cache keeps the record that an acknowledged write left, if that record is certain."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contract import put, text, update
from support.cache_site import Site
from support.kinds import EVERY, kind
from support.scripted import Scripted
from support.virtual_time import in_virtual_time
from tableside import stores
from tableside.core import values
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token, Written
from tableside.policies.cache import Cache
from tableside.settings import validate


def n(number: int) -> bytes:
    return text(n=number)


async def through(**given: Any) -> Site:
    return await Site.made(writes="through", **given)


@in_virtual_time
async def test_around_is_the_default_and_caches_no_written_record() -> None:
    site = await Site.made()
    await site.one(put("a", {"n": 1}))
    assert site.store.calls == [[put("a", {"n": 1})]]  # unchanged, without `returning`
    assert await site.value() == n(1)
    assert len(site.asked) == 2


@in_virtual_time
async def test_a_written_record_is_cached_as_long_as_a_read_one() -> None:
    site = await through(ttl_s=10.0)
    site.takes(4.0)
    await site.one(put("a", {"n": 1}))
    await site.elsewhere(put("a", {"n": 2}))
    await asyncio.sleep(5.9)
    assert await site.value() == n(1)
    await asyncio.sleep(0.2)
    assert await site.value() == n(2)


@in_virtual_time
async def test_a_deleted_record_is_cached_like_an_absence() -> None:
    site = await through(absent_ttl_s=2.0)
    await site.one(Delete("a"))
    assert await site.value() is None
    assert len(site.asked) == 1
    await site.elsewhere(put("a", {"n": 5}))
    await asyncio.sleep(1.9)
    assert await site.value() is None
    await asyncio.sleep(0.2)
    assert await site.value() == n(5)


@in_virtual_time
async def test_a_written_record_is_not_returned_after_its_expiry() -> None:
    site = await through(ttl_s=100.0)
    await site.one(put("a", {"n": 1}, ttl_s=5))
    found = await site.one(Get("a"))
    assert isinstance(found, Record)
    assert found.expires_ms == 1_005_000
    await site.one(update("a", {"n": 2}))  # does not change the expiry
    await asyncio.sleep(4.9)
    assert await site.value() == n(2)
    assert len(site.asked) == 2
    await asyncio.sleep(0.1)
    assert await site.value() is None
    assert len(site.asked) == 3


@in_virtual_time
async def test_a_replay_keeps_the_current_record() -> None:
    site = await through()
    await site.one(put("a", {"n": 1}, token=Token("w", 1)))
    await site.elsewhere(update("a", {"n": 7}, token=Token("v", 1)))
    replayed = await site.one(put("a", {"n": 1}, token=Token("w", 1)))
    assert isinstance(replayed, Written)
    assert (replayed.replayed, replayed.value) == (True, None)
    calls = len(site.asked)
    assert await site.value() == n(7)
    assert len(site.asked) == calls


# While policies are being replaced


@in_virtual_time
async def test_a_suspended_cache_shares_no_read_and_caches_none() -> None:
    site = await through()
    site.cache.suspend()
    site.takes(1.0, 1.0)
    await asyncio.gather(site.value(), site.value())
    await site.one(put("a", {"n": 1}))
    site.cache.resume()
    assert await site.value() == n(1)
    assert site.asked == [["a"]] * 4
    await site.value()
    assert len(site.asked) == 4


# On every store


@pytest.mark.server
@pytest.mark.parametrize("name", EVERY)
async def test_a_cached_written_record_equals_the_stores_record(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare value, etag and expiry for every kind of write, also if the store normalizes values."""
    used = kind(name, request, tmp_path)
    for variable, setting in used.environment.items():
        monkeypatch.setenv(variable, setting)
    settings = validate(used.configuration())
    backend = await stores.backend_type(settings.stores["s"].kind).open(settings.stores["s"].options)
    try:
        spec = settings.tables["t"].spec("t", settings.options.get("t"))
        store = Scripted(await backend.store(spec))
        cache = Cache(store, records_max=99, bytes_max=2**20, ttl_s=60, absent_ttl_s=60, writes="through")
        for operations in rounds():
            allowed = [one for one in operations if store.capabilities.tokens or getattr(one, "token", None) is None]
            written = await cache.apply(allowed)
            assert {type(outcome) for outcome in written} == {Written}
            calls = len(store.calls)
            held = await cache.apply([Get(operation.key) for operation in allowed])
            assert len(store.calls) == calls
            found = await store.apply([Get(operation.key) for operation in allowed])
            for operation, mine, its in zip(allowed, held, found, strict=True):
                assert facts(mine) == facts(its), operation
    finally:
        await backend.close()


def rounds() -> list[list[Operation]]:
    """Return batches of writes. Each batch starts from the records that the previous one left."""
    token = Token("w", 5)
    return [
        [
            put("plain", {"n": 1.5, "a": [1, {"b": None}], "c": "ü\n", "d": 1e22, "b": None}),
            put("short", {"n": 1}, ttl_s=60),
            put("made", {"n": 1}, if_absent=True, ttl_s=3600.5),
            update("default", {"$inc": {"n": 2}}, {"n": 40}, ttl_s=50),
            put("tokened", {"n": 1}, token=token, ttl_s=70),
            Delete("nothing"),
        ],
        [
            update("plain", {"$set": {"a": {"x": 0.1}}, "$unset": ["d"]}),
            update("short", {"$inc": {"n": 1}}),
            update("made", {"n": 5}, ttl_s=-1),
            put("default", {"n": -0.0}),
            put("tokened", {"n": 2}, token=token),
            Delete("nothing", token=token),
        ],
        [Delete("plain"), put("short", {}), update("made", {}), Delete("default"), put("nothing", {}, token=token)],
    ]


def facts(outcome: Outcome) -> Any:
    if outcome is None:
        return None
    assert isinstance(outcome, Record), outcome
    return (values.encode_sorted(values.decode(outcome.value)), outcome.etag, outcome.expires_ms)
