"""Contract tests for policies: callers get the outcomes of the inner store."""

import asyncio
from typing import Any

import msgspec

from tableside.core import errors, values
from tableside.core.errors import InvalidOperation, PreconditionFailed, RecordNotFound, StoreUnavailable, TableError
from tableside.core.operations import NO_EXPIRY, Delete, Get, Key, Operation, Record, Token, Written
from tableside.core.store import Capabilities, Policy, Scan

from .opening import Open, Time
from .within import PATIENCE_S, Within, WithinPolicy, increment
from .words import COMPOSITE, INTEGERS, etag, one, put, record, refused, same, scanned, update, value, written


class Answers(WithinPolicy):
    """A policy passes operations, outcomes, errors and scans through unchanged, and returns no stale outcome."""

    async def test_operations_reach_the_store_unchanged(self, policy: Policy, within: Within) -> None:
        token, other = Token("w", 1), Token("w", 2)
        asked: list[Operation] = [
            Get("a", max_age_s=0),
            put("b", {"n": 1}, if_absent=True, ttl_s=7, token=token),
            put("c", {"n": 2}, if_match=("x", "y"), returning=True),
            update("d", [{"$inc": {"n": 1}}, {"m": None}], {"n": 1}, ttl_s=NO_EXPIRY, token=other, returning=True),
            Delete("e", if_match=("z",), token=token),
        ]
        await policy.apply(asked)

        def plain(operation: Any) -> Any:
            """Clear the flag that requests the value: a policy may set it because it needs the value itself."""
            named = hasattr(operation, "returning")
            return msgspec.structs.replace(operation, returning=False) if named else operation

        reached = {operation.key: operation for call in within.calls for operation in call}
        assert [plain(reached[operation.key]) for operation in asked] == list(map(plain, asked))

    async def test_records_and_acknowledgements_come_from_the_store(self, policy: Policy, within: Within) -> None:
        made = await written(policy, put("a", {"n": 1}, ttl_s=60))
        there = await record(within, "a")
        assert made == Written(there.etag, expires_ms=there.expires_ms)
        for _ in range(2):
            found = await record(policy, "a")
            assert (found.value, found.etag, found.expires_ms) == (there.value, there.etag, there.expires_ms)
        changed = await written(policy, increment("a", returning=True))
        there = await record(within, "a")
        assert changed == Written(there.etag, value=there.value, expires_ms=there.expires_ms)
        assert await written(policy, increment("b", returning=True)) == Written(
            await etag(within, "b"), created=True, value=b'{"n":1}'
        )
        assert await written(policy, Delete("a")) == Written(None)

    async def test_a_get_sees_every_write_acknowledged_before_it(self, policy: Policy) -> None:
        async def seen() -> Any:
            for _ in range(2):  # the second read may come from a cache
                outcome = await one(policy, Get("a"))
            return values.decode(outcome.value)["n"] if isinstance(outcome, Record) else outcome

        assert await seen() is None
        await written(policy, increment("a"))
        assert await seen() == 1
        await written(policy, put("a", {"n": 5}))
        assert await seen() == 5
        await policy.apply([increment("a"), put("b"), Get("c")])
        assert await seen() == 6
        assert refused(await one(policy, update("a", {"$push": {"n": 1}})), InvalidOperation)
        assert await seen() == 6
        await written(policy, Delete("a"))
        assert await seen() is None
        await written(policy, put("a", {"n": 9}, if_absent=True))
        assert await seen() == 9

    async def test_keys_of_every_kind_are_distinguished(self, open_store: Open) -> None:
        kinds: list[tuple[Any, list[Key]]] = [
            (INTEGERS, [0, 1, -1, 2**63 - 1]),
            (COMPOSITE, [("u", 1), ("u", -1), ("u1", 1), ("1", 1)]),
        ]
        for schema, keys in kinds:
            store = await open_store(key=schema)
            await store.apply([put(key, {"i": index}) for index, key in enumerate(keys[:-1])])
            for _ in range(2):
                outcomes = await store.apply([Get(key) for key in keys])
                found = [values.decode(each.value)["i"] for each in outcomes if isinstance(each, Record)]
                assert found == [*range(len(keys) - 1)]
                assert outcomes[-1] is None

    async def test_the_policy_states_the_capabilities_of_the_store(self, policy: Policy, within: Within) -> None:
        for can in (Capabilities(), Capabilities(*[False] * 8), Capabilities(tokens=False, partitions=True)):
            within.can = can
            assert policy.capabilities == can
        assert policy.spec is within.spec

    # Errors

    async def test_each_error_is_the_outcome_of_its_operation(self, policy: Policy, within: Within) -> None:
        kinds: list[type[TableError]] = [
            RecordNotFound, InvalidOperation, errors.TooLarge, PreconditionFailed, errors.Unsupported,
            errors.RecordUnreadable, errors.Internal, errors.TableNotFound,
        ]  # fmt: skip
        faults: dict[Key, TableError] = {kind.code: kind(f"so it is: {kind.code}", retry_after_s=3) for kind in kinds}
        within.fault = lambda operation, call: faults.get(operation.key)
        for make in (Get, put, Delete):
            asked = [operation for kind in kinds for operation in (make(kind.code), put(f"beside {kind.code}"))]
            outcomes = await policy.apply(asked)
            assert {type(outcome) for outcome in outcomes[1::2]} == {Written}
            for kind, outcome in zip(kinds, outcomes[::2], strict=True):
                assert refused(outcome, kind)
                assert isinstance(outcome, TableError)
                assert (outcome.detail, outcome.retry_after_s) == (f"so it is: {kind.code}", 3)

    async def test_an_unknown_outcome_is_reported_and_the_next_get_sees_the_store(
        self, policy: Policy, within: Within
    ) -> None:
        await written(policy, put("a", {"n": 1}))
        assert same(await value(policy, "a"), {"n": 1})
        lost = StoreUnavailable("the answer was lost", applied="unknown")
        within.fault = lambda operation, call: None if isinstance(operation, Get) else lost
        outcome = await one(policy, increment("a"))
        assert isinstance(outcome, StoreUnavailable)
        assert (outcome.applied, outcome.retriable, outcome.detail) == ("unknown", True, lost.detail)
        assert same(await value(policy, "a"), {"n": 2}), "it was applied, and once"

    async def test_an_exception_is_raised_and_does_not_block_later_calls(self, policy: Policy, within: Within) -> None:
        for _ in range(3):
            within.breaks = True
            for operation in (Get("a", max_age_s=0), put("a")):
                try:
                    outcome = await asyncio.wait_for(one(policy, operation), PATIENCE_S)
                except ZeroDivisionError:
                    continue
                assert isinstance(outcome, errors.Internal)
                assert outcome.applied == ("no" if isinstance(operation, Get) else "unknown")
            within.breaks = False
            async with asyncio.timeout(PATIENCE_S):
                assert isinstance(await one(policy, put("b")), Written)
                assert await one(policy, Get("a")) is None

    # Versions, tokens, expiry

    async def test_a_repeated_write_is_a_replay_and_leaves_the_record(self, policy: Policy) -> None:
        first = await written(policy, increment("a", token=Token("w", 5), returning=True))
        again = await written(policy, increment("a", token=Token("w", 5), returning=True))
        assert (first.replayed, first.created) == (False, True)
        assert again == Written(first.etag, replayed=True, value=first.value)
        await written(policy, Delete("a", token=Token("w", 6)))
        for late in (put("a", {"n": 7}, token=Token("w", 5)), increment("a", token=Token("w", 6))):
            assert (await written(policy, late)).replayed
            assert await one(policy, Get("a")) is None
        await written(policy, put("a", {"n": 8}, token=Token("w", 7)))
        assert same(await value(policy, "a"), {"n": 8})

    async def test_a_record_is_absent_from_the_moment_it_expires(self, policy: Policy, time: Time) -> None:
        await policy.apply([put(key, {"n": 1}, ttl_s=2) for key in "abcd"])
        await time.passes(1.999)
        for key in "abcd":
            assert same(await value(policy, key), {"n": 1})
        await time.passes(0.001)
        assert await policy.apply([Get("a"), Get("b")]) == [None, None]
        assert refused(await one(policy, update("b", {"n": 2})), RecordNotFound)
        assert (await written(policy, increment("c"))).created
        assert (await written(policy, put("d", {"n": 4}, if_absent=True))).created
        assert same(await value(policy, "c"), {"n": 1})
        assert (await record(policy, "d")).expires_ms == 0

    # Scans

    async def test_scans_and_splits_are_passed_through(self, policy: Policy, within: Within) -> None:
        await policy.apply([put(f"{letter}{index}", {"n": index}) for letter in "ab" for index in range(10)])
        await policy.apply([Get("a2"), increment("a1")])
        assert await scanned(policy, prefix="a") == [f"a{index}" for index in range(10)]
        parts = await policy.splits(4)
        assert 4 in within.asked
        assert parts == await within.splits(4)
        scan = Scan(3, "a", None, parts[0], b"a2", 500)
        page = await policy.scan(scan)
        assert any(asked is scan for asked in within.asked)
        assert page == await within.scan(scan)
        assert same(values.decode(dict([*(await policy.scan(Scan(100))).records])["a1"].value), {"n": 2})
