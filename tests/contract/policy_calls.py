"""Contract tests for policies: concurrent callers, deadlines, cancellation and closing."""

import asyncio
from typing import Any

import msgspec
import pytest

from tableside.core import values
from tableside.core.budget import Budget
from tableside.core.errors import PreconditionFailed, TableError
from tableside.core.operations import Delete, Get, Operation, Record, Token, Written
from tableside.core.store import Policy

from .within import PATIENCE_S, Within, WithinPolicy, increment, until
from .words import etag, one, put, refused, same, value, written

NEVER_S = 3600.0


class Calls(WithinPolicy):
    """However a policy groups calls, each caller gets its own outcomes in time, and no caller waits forever."""

    async def test_concurrent_batches_on_the_same_keys_all_count_and_are_visible(self, policy: Policy) -> None:
        keys = [f"k{index}" for index in range(12)]
        acknowledged = dict.fromkeys(keys, 0)

        async def caller(number: int) -> None:
            for turn in range(6):
                some = [keys[(number + index * (turn + 1)) % 12] for index in range(1 + number % 5)]
                some = list(dict.fromkeys(some))
                outcomes = await policy.apply([increment(key) for key in some])
                assert {type(outcome) for outcome in outcomes} == {Written}
                for key in some:
                    acknowledged[key] += 1
                least = dict(acknowledged)
                for key, found in zip(keys, await policy.apply([Get(key) for key in keys]), strict=True):
                    n: Any = values.decode(found.value)["n"] if isinstance(found, Record) else 0
                    assert n >= least[key], "older than a write that was acknowledged before"

        await asyncio.gather(*(caller(number) for number in range(20)))
        assert {key: (await value(policy, key))["n"] for key in keys} == acknowledged

    async def test_reads_after_ordered_writes_return_the_newest(self, policy: Policy) -> None:
        asked = [put("a", {"n": order}, order=order) for order in (3, 1, 2, 5, 4)]
        for seen, write in zip((3, 3, 3, 5, 5), asked, strict=True):
            for ordered in (write, msgspec.structs.replace(write, returning=True)):
                assert (await written(policy, ordered)).superseded == (write.order != seen)
                assert same(await value(policy, "a"), {"n": seen})
        outcomes = await asyncio.gather(*(written(policy, put("b", {"n": order}, order=order)) for order in range(32)))
        assert not outcomes[-1].superseded
        assert same(await value(policy, "b"), {"n": 31})
        await asyncio.gather(*(written(policy, Delete("b", order=order)) for order in (31, 30, 29)))
        assert await one(policy, Get("b")) is None

    async def test_one_of_many_concurrent_writes_with_the_same_etag_succeeds(self, policy: Policy) -> None:
        for turn in range(2):
            rest: dict[str, Any] = {"if_match": (await etag(policy, "a"),)} if turn else {"if_absent": True}
            puts = [put("a", {"n": index}, **rest) for index in range(32)]
            outcomes = await asyncio.gather(*(one(policy, each) for each in puts))
            [winner] = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
            assert all(refused(each, PreconditionFailed) for index, each in enumerate(outcomes) if index != winner)
            assert same(await value(policy, "a"), {"n": winner})

    async def test_concurrent_copies_of_a_write_with_a_token_count_once(self, policy: Policy) -> None:
        outcomes = await asyncio.gather(*(written(policy, increment("a", token=Token("w", 1))) for _ in range(32)))
        assert [outcome.replayed for outcome in outcomes].count(False) == 1
        assert same(await value(policy, "a"), {"n": 1})

    # Deadlines, cancellation, closing

    async def test_a_slow_call_ends_at_the_deadline_with_an_unknown_outcome(
        self, policy: Policy, within: Within
    ) -> None:
        within.takes_s = lambda operations: NEVER_S
        until = asyncio.get_running_loop().time() + 0.3
        asked: list[Operation] = [Get("a"), put("b"), increment("c"), Delete("d", token=Token("w", 1))]
        async with asyncio.timeout(PATIENCE_S):
            outcomes = await policy.apply(asked, Budget(until))
        assert max(within.untils) <= until
        reached = {operation.key for call in within.calls for operation in call}
        for operation, outcome in zip(asked, outcomes, strict=True):
            assert isinstance(outcome, TableError)
            assert outcome.retriable
            unknown = operation.key in reached and not isinstance(operation, Get)
            assert outcome.applied == ("unknown" if unknown else "no")

    async def test_cancelling_a_read_cancels_it_in_the_store(self, policy: Policy, within: Within) -> None:
        within.open.clear()
        reading = asyncio.create_task(policy.apply([Get("a"), Get("b")]))
        await until(lambda: within.held > 0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await until(lambda: within.held == 0)

    async def test_a_cancelled_caller_does_not_cancel_others(self, policy: Policy, within: Within) -> None:
        await written(policy, put("a", {"n": 1}))
        within.open.clear()
        operations: list[Operation] = [Get("a", max_age_s=0), put("b"), increment("c"), Get("a", max_age_s=0)]
        calls = [asyncio.create_task(policy.apply([operation])) for operation in operations]
        await until(lambda: within.held > 0)
        calls[0].cancel()
        await asyncio.wait([calls[0]])
        within.open.set()
        async with asyncio.timeout(PATIENCE_S):
            outcomes = await asyncio.gather(*calls[1:])
        assert [type(outcome) for [outcome] in outcomes] == [Written, Written, Record]

    async def test_a_cancelled_write_does_not_undo_a_later_one(self, policy: Policy, within: Within) -> None:
        within.open.clear()
        left = asyncio.create_task(policy.apply([put("a", {"n": 1})]))
        await until(lambda: within.held > 0)
        left.cancel()
        await asyncio.wait([left])
        later = asyncio.create_task(policy.apply([put("a", {"n": 2}), put("b", {"n": 2})]))
        await asyncio.sleep(0)
        within.open.set()
        async with asyncio.timeout(PATIENCE_S):
            assert {type(outcome) for outcome in await later} == {Written}
            for key in "ab":
                assert same(await value(policy, key), {"n": 2})

    async def test_closing_finishes_accepted_calls_and_closes_the_inner_store(
        self, policy: Policy, within: Within
    ) -> None:
        within.open.clear()
        accepted = asyncio.create_task(policy.apply([put("a", {"n": 1}), increment("b")]))
        await until(lambda: within.held > 0)
        closing = asyncio.create_task(policy.close())
        await asyncio.sleep(0)
        within.open.set()
        async with asyncio.timeout(PATIENCE_S):
            assert {type(outcome) for outcome in await accepted} == {Written}
            await closing
            assert within.closed == 1
            await written(policy, increment("a"))
            assert same(await value(policy, "a"), {"n": 2}), "what still comes is done"
            await policy.close()
