"""Builds the stack of policies around a table's store: which ones, and their order, from its settings."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from ..core import Get, Operation, Store, Update
from ..core.store import Policy, SharesUpdates
from ..policies import (
    UNLIMITED,
    Bulkhead,
    Cache,
    CallerRate,
    Coalesce,
    PolicyMetrics,
    Rate,
    RateLimit,
    Retry,
    RetryBudget,
    StoreCalls,
    Timeout,
)
from ..settings import BatchSettings, TableSettings
from ..stores import PartitionedStore
from ..telemetry import Traces
from . import table_metrics
from .admission import PartitionLimit, StoreInFlight
from .backends import SharedLimiters
from .table_metrics import GenerationMetrics


class StackMetrics:
    """The metrics of operations, policies and generations, shared by the tables of one catalog."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.operations = table_metrics.OperationMetrics(registry)
        self.policies = PolicyMetrics(registry)
        self.generations = GenerationMetrics(registry)
        self.connections = Gauge(
            "tableside_store_connections",
            "Connections of a store: in use (including those being opened), open, and the limit (most).",
            ("store", "state"),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.disk = Gauge(
            "tableside_store_disk_bytes",
            "A store's local disk: files (used), compaction_pending, and the free bytes and size of the file system.",
            ("store", "state"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.writes_delayed = Gauge(
            "tableside_store_writes_delayed",
            "1 while a store slows writes down or stops them until compaction catches up, else 0.",
            ("store",),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.reachable = Gauge(
            "tableside_store_reachable",
            "1 if the last check of a store, at least every 10 seconds, reached it, else 0.",
            ("store",),
            registry=registry,
            multiprocess_mode="livemin",
        )


class StackContext(msgspec.Struct, frozen=True):
    """The parameters that the stacks of one store share.

    `kind` is the kind of the store. `remote` means that the store runs outside this process. A local store has retries
    and a bulkhead only if its settings request them. `share` is this process's fraction of the limits that the workers
    of a replica share. `in_flight` limits the work in flight in the store. `caller_rate` limits the operations of each
    caller in all stores. `partitions` are the contexts of the stores that a partitioned store consists of.
    """

    metrics: StackMetrics
    kind: str = "store"
    remote: bool = True
    share: float = 1.0
    traces: Traces | None = None
    budget: RetryBudget | None = None
    limiters: SharedLimiters | None = None
    in_flight: StoreInFlight | None = None
    caller_rate: CallerRate | None = None
    partitions: "tuple[StackContext, ...]" = ()


class Stack(msgspec.Struct, frozen=True):
    """The policies around a store: `top` receives the operations, `policies` are the outermost policies.

    In a partitioned table each partition has separate policies, and `top` is the partitioned store above them.
    """

    top: Store
    policies: tuple[Policy, ...]
    caches: tuple[Cache, ...] = ()

    async def close(self) -> None:
        """Close the policies when their operations have finished."""
        await asyncio.gather(*(policy.close() for policy in self.policies))

    def suspend(self) -> None:
        """Empty the caches and bypass them until `resume`."""
        for one in self.caches:
            one.suspend()

    def resume(self) -> None:
        """Let the caches store entries again."""
        for one in self.caches:
            one.resume()


class SharedLimits:
    """The limits of a table, which the stacks of its generations share."""

    def __init__(self) -> None:
        self._first: dict[type[Policy], Policy] = {}

    def around(self, inner: Store, kind: type[Policy], build: Callable[[Store], Policy]) -> Policy:
        """Return a limit of this kind around a store: the same limit as that of the other stacks."""
        if (first := self._first.get(kind)) is not None:
            return first.around(inner)
        self._first[kind] = built = build(inner)
        return built


def build_stack(
    store: Store, settings: TableSettings, context: StackContext, limits: SharedLimits | None = None
) -> Stack:
    """Put the policies around a store, or around each partition of a partitioned one, which has limits of its own."""
    if not isinstance(store, PartitionedStore):
        return _wrap(store, settings, context, limits or SharedLimits())
    both = zip(store.partitions, context.partitions, strict=True)
    parts = [_wrap(part, settings, one, SharedLimits()) for part, one in both]
    policies = tuple(_limit(part, one) for part, one in zip(parts, context.partitions, strict=True))
    return Stack(store.with_policies(policies), policies, tuple(one for part in parts for one in part.caches))


def _limit(part: Stack, context: StackContext) -> Policy:
    """Limit the work in flight in the store of a partition. `Table` does this for tables without partitions."""
    [outermost] = part.policies
    return outermost if context.in_flight is None else PartitionLimit(outermost, context.in_flight)


def _wrap(store: Store, settings: TableSettings, context: StackContext, limits: SharedLimits) -> Stack:
    """Put the policies around a store, the innermost first: limits apply to every attempt, and a cache hit is free."""
    read, write = settings.read, settings.write
    remote, share = context.remote, context.share
    metrics, traces = context.metrics.policies, context.traces
    inner: Policy = StoreCalls(store, context.kind, metrics=metrics, traces=traces)
    if read.timeout_s is not None or write.timeout_s is not None:
        inner = Timeout(inner, read_s=read.timeout_s, write_s=write.timeout_s, metrics=metrics)
    if remote or "concurrency_max" in settings.model_fields_set:
        bulkhead = partial(Bulkhead, concurrency_max=settings.concurrency_max, metrics=metrics, traces=traces)
        inner = limits.around(inner, Bulkhead, bulkhead)
    if read.rate_per_s is not None or write.rate_per_s is not None:
        limiters, limiter = context.limiters, settings.limiter
        shared = limiters.limiter(limiter) if limiters is not None and limiter is not None else None
        part = 1.0 if shared is not None else share
        rate_limit = partial(
            RateLimit,
            read=_rate(read.rate_per_s, read.burst, part),
            write=_rate(write.rate_per_s, write.burst, part),
            shared=shared,
            share=share,
            metrics=metrics,
            traces=traces,
        )
        inner = limits.around(inner, RateLimit, rate_limit)
    if remote or read.retries_configured or write.retries_configured:
        inner = Retry(
            inner,
            read=read,
            write=write,
            budget=context.budget,
            metrics=metrics,
            traces=traces,
        )
    batch, shared_singles = settings.batch, _shared_singles(store, settings.batch or BatchSettings(), remote=remote)
    if batch is not None or shared_singles:
        inner = Coalesce(
            inner,
            operations_max=UNLIMITED if batch is None else batch.operations_max,
            bytes_max=UNLIMITED if batch is None else batch.bytes_max,
            singles=shared_singles,
            metrics=metrics,
            traces=traces,
        )
    caching = None
    if (kept := settings.cache) is not None:
        inner = caching = Cache(
            inner,
            records_max=kept.records_max,
            bytes_max=kept.bytes_max,
            ttl_s=kept.ttl_s,
            absent_ttl_s=kept.absent_ttl_s,
            metrics=metrics,
        )
    return Stack(inner, (inner,), () if caching is None else (caching,))


def _shared_singles(store: Store, batch: BatchSettings, *, remote: bool) -> dict[type[Operation], int]:
    """Return how many single operations of a kind share a call."""
    if not remote:
        return {}
    shared: dict[type[Operation], int] = {Get: batch.operations_max}
    return shared | {Update: store.updates_per_call_max} if isinstance(store, SharesUpdates) else shared


def _rate(per_s: float | None, burst: float | None, share: float) -> Rate | None:
    return None if per_s is None else Rate(per_s, burst).scaled(share)
