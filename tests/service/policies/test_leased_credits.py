"""The leases of shared credits that a process takes: as large as needed, kept briefly, used in order of arrival."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from support.virtual_time import in_virtual_time, now
from tableside.policies.metrics import PolicyMetrics
from tableside.policies.rate_limit import Rate
from tableside.policies.rate_limit.shared import LEASE_S, Lease, LeasedBucket


class Limiter:
    """A shared limit that grants leases while it has credits, and records their sizes."""

    def __init__(self, credit: float, per_s: float = 0.0) -> None:
        self.credit = credit
        self.per_s = per_s
        self.away = False
        self.given: list[float] = []
        self.questions = 0
        self._counted_at = now()

    async def __call__(self, wanted: float, least: float) -> Lease | None:
        self.questions += 1
        await asyncio.sleep(0.001)
        if self.away:
            return None
        self.credit += (now() - self._counted_at) * self.per_s
        self._counted_at = now()
        for credit in (wanted, min(self.credit, wanted)):
            if least <= credit <= self.credit + 1e-9:
                self.credit -= credit
                self.given.append(credit)
                return Lease(credit)
        return Lease(0.0, (least - self.credit) / self.per_s)


def bucket(limiter: Limiter, per_s: float = 100, metrics: PolicyMetrics | None = None) -> LeasedBucket:
    rate = Rate(per_s)
    fallbacks = (metrics or PolicyMetrics()).limiter_fallbacks.labels("t", "read")
    return LeasedBucket(limiter, rate.burst_credits, rate, rate.scaled(0.5).bucket(), fallbacks)


async def take_credits(leased: LeasedBucket, cost: float = 1.0, left_s: float = 60) -> int:
    """Take the credits of one operation, as a call does."""
    return 1 if leased.try_take(cost) else await leased.take([cost], now() + left_s)


@in_virtual_time
async def test_a_rare_caller_leases_only_the_credits_it_needs() -> None:
    limiter = Limiter(1000)
    leased = bucket(limiter)
    for _ in range(20):
        assert await take_credits(leased) == 1
        await asyncio.sleep(0.5)
    assert limiter.given == pytest.approx([1.0] * 20, abs=0.1)


@in_virtual_time
async def test_a_busy_caller_takes_larger_leases_up_to_the_limit() -> None:
    limiter = Limiter(1e6)
    leased = bucket(limiter, per_s=1000)
    for _ in range(1000):
        await take_credits(leased)
        await asyncio.sleep(0.001)
    assert max(limiter.given) <= 1000 * LEASE_S + 1e-6
    assert limiter.questions <= 60


@in_virtual_time
async def test_a_call_without_credits_in_time_is_rejected_immediately() -> None:
    limiter = Limiter(0, per_s=1)
    leased = bucket(limiter, per_s=1)
    started = now()
    assert await take_credits(leased, 1, left_s=0.5) == 0
    assert now() - started < 0.1
    assert leased.wait_s(1) == pytest.approx(1, abs=0.06)
    await asyncio.sleep(leased.wait_s(1))
    assert await take_credits(leased, 1, left_s=0.5) == 1, "the announced wait was correct"


@in_virtual_time
async def test_a_deadline_ends_the_wait_in_the_line_too() -> None:
    limiter = Limiter(0, per_s=1)
    leased = bucket(limiter, per_s=1)
    first = asyncio.create_task(take_credits(leased, 1))
    await asyncio.sleep(0)
    started = now()
    assert await leased.take([1.0], started + 0.5) == 0
    assert now() == pytest.approx(started + 0.5)
    assert await first == 1


@in_virtual_time
async def test_without_the_shared_limiter_a_local_share_is_used() -> None:
    registry = CollectorRegistry()
    limiter = Limiter(1000)
    limiter.away = True
    leased = bucket(limiter, per_s=100, metrics=PolicyMetrics(registry))
    started = now()
    for _ in range(150):
        assert await take_credits(leased) == 1
    assert now() - started == pytest.approx(2, abs=0.1), "50 at once, and then 50 a second"
    assert limiter.given == []
    assert (
        registry.get_sample_value("tableside_rate_limit_fallbacks_total", {"table": "t", "direction": "read"})
        == limiter.questions
    )
