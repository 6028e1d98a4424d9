"""Contract tests: writes that require a version or an absent record."""

import asyncio

from tableside.core.errors import PreconditionFailed
from tableside.core.operations import ANY_ETAG, Delete, Get, Written
from tableside.core.store import Store

from .opening import Open, Opens, Time, needs
from .words import etag, one, put, refused, same, update, value, written


class Preconditions(Opens):
    """A write that requires a version, or an absent record, is applied only if the condition is met."""

    async def test_every_write_changes_the_etag(self, store: Store) -> None:
        seen = [(await written(store, put("a", {"n": 0}))).etag]
        for document in ({"n": 1}, {"n": 2}, {"n": 1}, {"x": {"y": None}}, {"$push": {"l": 1}}):
            seen.append((await written(store, update("a", document))).etag)
            assert seen[-1] == await etag(store, "a")
        seen.append((await written(store, put("a", {"n": 1}))).etag)
        await written(store, Delete("a"))
        seen.append((await written(store, put("a", {"n": 2}))).etag)
        assert len(set(seen)) == len(seen)
        assert None not in seen

    async def test_an_etag_is_valid_in_a_header(self, store: Store) -> None:
        found = (await written(store, put("a"))).etag
        assert found is not None
        assert found.isascii()
        assert found.isprintable()
        assert '"' not in found
        assert " " not in found
        assert found != ANY_ETAG

    async def test_if_match_replaces_that_version_only(self, store: Store) -> None:
        first = (await written(store, put("a", {"n": 1}))).etag or ""
        second = (await written(store, put("a", {"n": 2}, if_match=(first,)))).etag or ""
        assert refused(await one(store, put("a", {"n": 3}, if_match=(first,))), PreconditionFailed)
        assert refused(await one(store, update("a", {"n": 3}, if_match=(first,))), PreconditionFailed)
        assert refused(await one(store, Delete("a", if_match=(first,))), PreconditionFailed)
        assert same(await value(store, "a"), {"n": 2})
        assert await etag(store, "a") == second
        third = (await written(store, update("a", {"n": 4}, if_match=(second,)))).etag or ""
        assert same(await value(store, "a"), {"n": 4})
        await written(store, Delete("a", if_match=(third,)))
        assert await one(store, Get("a")) is None

    async def test_if_match_accepts_several_etags(self, store: Store) -> None:
        version = (await written(store, put("a", {"n": 1}))).etag or ""
        assert refused(await one(store, put("a", {}, if_match=("x", "y"))), PreconditionFailed)
        assert refused(await one(store, put("a", {}, if_match=())), PreconditionFailed)
        await written(store, put("a", {"n": 2}, if_match=("x", version, "y")))
        assert same(await value(store, "a"), {"n": 2})

    async def test_an_etag_that_a_proxy_has_changed_matches_no_version_and_is_named_as_such(self, store: Store) -> None:
        version = (await written(store, put("a", {"n": 1}))).etag
        for changed in (f'W/"{version}"', f"{version}-gzip"):
            given = ("x", changed)
            for write in (put("a", {}, if_match=given), update("a", {"n": 2}, if_match=given), Delete("a", given)):
                outcome = await one(store, write)
                assert refused(outcome, PreconditionFailed)
                assert "a proxy has compressed" in str(outcome).lower()
        assert same(await value(store, "a"), {"n": 1})

    async def test_if_match_any_requires_a_record(self, store: Store) -> None:
        await written(store, put("a", {"n": 1}))
        for operation in (put("a", {"n": 2}, if_match=("*",)), update("a", {"n": 3}, if_match=("*",))):
            await written(store, operation)
        await written(store, Delete("a", if_match=("*",)))
        for given in (("*",), ("x",)):
            for absent in (
                put("a", {}, if_match=given),
                update("a", {}, if_match=given),
                update("a", {}, {}, if_match=given),
                Delete("a", if_match=given),
            ):
                assert refused(await one(store, absent), PreconditionFailed)
        assert await one(store, Get("a")) is None

    async def test_if_absent_creates_a_record_once(self, store: Store) -> None:
        made = await written(store, put("a", {"n": 1}, if_absent=True))
        assert made.created
        assert refused(await one(store, put("a", {"n": 2}, if_absent=True)), PreconditionFailed)
        assert same(await value(store, "a"), {"n": 1})
        await written(store, Delete("a"))
        assert (await written(store, put("a", {"n": 3}, if_absent=True))).created
        assert same(await value(store, "a"), {"n": 3})

    async def test_one_of_many_concurrent_creations_succeeds(self, store: Store) -> None:
        puts = [put("a", {"n": index}, if_absent=True) for index in range(32)]
        outcomes = await asyncio.gather(*(one(store, operation) for operation in puts))
        [winner] = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
        assert all(refused(outcome, PreconditionFailed) for index, outcome in enumerate(outcomes) if index != winner)
        assert same(await value(store, "a"), {"n": winner})

    async def test_one_of_many_concurrent_replacements_succeeds(self, store: Store) -> None:
        version = (await written(store, put("a", {"n": -1}))).etag or ""
        writes = [put("a", {"n": index}, if_match=(version,)) for index in range(16)]
        writes += [put("a", {"n": index}, if_match=("other", version)) for index in range(16, 32)]
        outcomes = await asyncio.gather(*(one(store, operation) for operation in writes))
        [winner] = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
        assert all(refused(outcome, PreconditionFailed) for index, outcome in enumerate(outcomes) if index != winner)
        assert same(await value(store, "a"), {"n": winner})

    async def test_an_expired_record_is_absent_for_preconditions(self, open_store: Open, time: Time) -> None:
        store = await open_store()
        needs(store, "if_match", "ttl")
        version = (await written(store, put("a", {"n": 1}, ttl_s=time.short_s))).etag or ""
        await time.passes(time.short_s)
        assert refused(await one(store, put("a", {}, if_match=(version,))), PreconditionFailed)
        assert refused(await one(store, update("a", {}, {}, if_match=("*",))), PreconditionFailed)
        assert refused(await one(store, Delete("a", if_match=(version,))), PreconditionFailed)
        assert (await written(store, put("a", {"n": 2}, if_absent=True))).created
        assert same(await value(store, "a"), {"n": 2})
