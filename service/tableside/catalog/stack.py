"""Builds the stack of policies around a table's store: which ones, and their order, from its settings."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from ..core import Delete, Get, Operation, Put, Store, Update
from ..core.store import Policy
from ..policies import UNLIMITED, Bulkhead, Cache, Coalesce, Rate, RateLimit, Retry, StoreCalls, Timeout
from ..settings import BatchSettings, DirectionSettings, TableSettings
from ..stores import PartitionedStore
from .admission import PartitionLimit
from .open_stores import OpenStore
from .table import Table
from .table_metrics import TableMetrics

Limits = dict[type[Policy], Policy]
"""The limits of a table by their kind. The stacks of its generations share them."""


class Stack(msgspec.Struct, frozen=True):
    """A store, the table that callers use, and the outermost policies between them: one, or one for each partition."""

    store: Store
    policies: list[Policy]
    table: Table

    async def close(self) -> None:
        """Close the policies when no operation is in flight."""
        await self.table.drain()
        await asyncio.gather(*(policy.close() for policy in self.policies))


def build_stack(store: Store, settings: TableSettings, open_store: OpenStore, limits: Limits) -> Stack:
    """Put the policies around a store, or around each partition of a partitioned one, which has limits of its own."""
    if isinstance(store, PartitionedStore):
        stores = open_store.partitions
        policies = [_wrap(part, settings, one, {}) for part, one in zip(store.partitions, stores, strict=True)]
        # A table without partitions limits the work in flight itself.
        limited = [
            policy if one.in_flight is None else PartitionLimit(policy, one.in_flight)
            for policy, one in zip(policies, stores, strict=True)
        ]
        top: Store = store.with_policies(limited)
    else:
        policies = [top := _wrap(store, settings, open_store, limits)]
    table = Table(
        top,
        deadline_s=settings.deadline_s,
        metrics=TableMetrics(open_store.environment.metrics, store.spec.name),
        operations=open_store.operations,
        in_store=None if store.spec.partitions else open_store.in_flight,
        caller_rate=open_store.caller_rate,
    )
    return Stack(store, policies, table)


def _wrap(store: Store, settings: TableSettings, open_store: OpenStore, limits: Limits) -> Policy:
    """Put the policies around a store, the innermost first: limits apply to every attempt, and a cache hit is free.

    A store within this process has retries and a bulkhead only if its settings request them.
    """
    read, write, batch = settings.read, settings.write, settings.batch
    remote, share = not open_store.backend.single_process, 1 / open_store.environment.workers
    metrics, traces = open_store.environment.metrics.policies, open_store.environment.traces
    inner: Policy = StoreCalls(store, open_store.kind, metrics=metrics, traces=traces)
    if read.timeout_s is not None or write.timeout_s is not None:
        inner = Timeout(inner, read_s=read.timeout_s, write_s=write.timeout_s, metrics=metrics)
    if remote or "concurrency_max" in settings.model_fields_set:
        bulkhead = partial(Bulkhead, concurrency_max=settings.concurrency_max, metrics=metrics, traces=traces)
        inner = _limit(inner, limits, Bulkhead, bulkhead)
    if read.rate_per_s is not None or write.rate_per_s is not None:
        limiters, limiter = open_store.limiters, settings.limiter
        shared = None if limiters is None or limiter is None else limiters[limiter]
        part = share if shared is None else 1.0
        rate_limit = partial(
            RateLimit,
            read=_rate(read, part),
            write=_rate(write, part),
            shared=shared,
            share=share,
            metrics=metrics,
            traces=traces,
        )
        inner = _limit(inner, limits, RateLimit, rate_limit)
    if remote or read.retries_configured or write.retries_configured:
        inner = Retry(inner, read=read, write=write, budget=open_store.budget, metrics=metrics, traces=traces)
    singles: dict[type[Operation], int] = {}
    if remote:
        singles[Get] = (batch or BatchSettings()).operations_max
        if hasattr(store, "writes_per_call_max"):
            singles |= dict.fromkeys((Put, Update, Delete), store.writes_per_call_max)
    if batch is not None or singles:
        inner = Coalesce(
            inner,
            operations_max=UNLIMITED if batch is None else batch.operations_max,
            bytes_max=UNLIMITED if batch is None else batch.bytes_max,
            singles=singles,
            metrics=metrics,
            traces=traces,
        )
    if settings.cache is not None:
        inner = Cache(inner, **settings.cache.model_dump(), metrics=metrics)
    return inner


def _limit(inner: Store, limits: Limits, kind: type[Policy], build: Callable[[Store], Policy]) -> Policy:
    """Put a limit around a store: the same limit as in the other stacks of the table."""
    if kind in limits:
        return limits[kind].around(inner)
    limits[kind] = limit = build(inner)
    return limit


def _rate(of: DirectionSettings, share: float) -> Rate | None:
    return None if of.rate_per_s is None else Rate(of.rate_per_s, of.burst).scaled(share)
