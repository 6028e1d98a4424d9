"""The validated configuration."""

import msgspec
from pydantic import BaseModel

from .. import stores
from ..auth import AuthSettings
from ..stores.partitioned import PartitionedSettings
from ..telemetry import LogSettings, TraceSettings
from .limits import ConsoleSettings, Hosts, LimitSettings, RetryBudgetSettings, RootPath, TrustedProxies
from .tables import TableLocation, TableSettings


class StoreSettings(msgspec.Struct, frozen=True):
    """One store: its kind, and the options of that kind."""

    kind: str
    options: BaseModel


class Settings(msgspec.Struct, frozen=True):
    """A validated configuration."""

    stores: dict[str, StoreSettings]
    tables: dict[str, TableSettings] = {}
    limits: LimitSettings = LimitSettings()
    auto_create: bool = False
    default_store: str | None = None
    retry_budget: RetryBudgetSettings = RetryBudgetSettings()
    logs: LogSettings = LogSettings()
    traces: TraceSettings = TraceSettings()
    console: ConsoleSettings = ConsoleSettings()
    hosts: Hosts = ()
    root_path: RootPath = ""
    trusted_proxies: TrustedProxies = ()
    auth: AuthSettings | None = None
    options: dict[str, BaseModel] = {}
    """By table, the options that depend on its kind of store. In the file they are members of the table."""

    @property
    def single_process(self) -> bool:
        """Whether one of the stores can be opened by one process only."""
        return any(stores.backend_type(store.kind).single_process for store in self.stores.values())

    def partitions(self, store: str) -> int:
        """Return the number of partitions of a store's tables, or 0 if the store is not partitioned."""
        options = self.stores[store].options if store in self.stores else None
        return len(options.partitions) if isinstance(options, PartitionedSettings) else 0

    def locations(self, store: str, name: str) -> frozenset[TableLocation]:
        """Return the locations of a table's records: one for each partition if the store is partitioned."""
        return frozenset((part, name) for part in partition_stores(self.stores.get(store), store))

    def workers_fault(self, workers: int) -> str | None:
        """Return why this number of worker processes cannot serve the configuration, or None if it can."""
        if workers > 1 and self.single_process:
            return "several workers need stores that processes can share; RocksDB and memory belong to one process"
        if workers > 1 and any(table.cache and table.cache.channel is None for table in self.tables.values()):
            return "a cache needs a channel or a single worker: a worker would not see the writes of the others"
        return None


def partition_stores(settings: StoreSettings | None, store: str) -> tuple[str, ...]:
    """Return the names of the stores that keep a store's records: its partitions, or itself if it has none."""
    options = settings.options if settings is not None else None
    return options.partitions if isinstance(options, PartitionedSettings) else (store,)
