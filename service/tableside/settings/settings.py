"""A whole configuration, as it is once checked."""

import msgspec
from pydantic import BaseModel

from .. import stores
from ..auth import AuthSettings
from ..stores.partitioned import PartitionedSettings
from ..telemetry import LogSettings, TraceSettings
from .limits import ConsoleSettings, Hosts, LimitSettings, RetryBudgetSettings
from .tables import TableLocation, TableSettings


class StoreSettings(msgspec.Struct, frozen=True):
    """One store: its kind, and what that kind may be told."""

    kind: str
    options: BaseModel


class Settings(msgspec.Struct, frozen=True):
    """A whole configuration, checked."""

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
    auth: AuthSettings | None = None
    options: dict[str, BaseModel] = {}
    """By table, what only its kind of store can be told of it; in the file it stands among the table's members."""

    @property
    def single_process(self) -> bool:
        """Whether some store can be owned by one process only."""
        return any(stores.backend_type(store.kind).single_process for store in self.stores.values())

    def partitions(self, store: str) -> int:
        """Return how many partitions the tables of a store have, 0 where it is not partitioned."""
        options = self.stores[store].options if store in self.stores else None
        return len(options.partitions) if isinstance(options, PartitionedSettings) else 0

    def locations(self, store: str, name: str) -> frozenset[TableLocation]:
        """Return where a table of that name in a store has its records: of a partitioned one, in each of its stores."""
        return frozenset((part, name) for part in partition_stores(self.stores.get(store), store))

    def workers_fault(self, workers: int) -> str | None:
        """Return why so many processes cannot serve this together, if they cannot."""
        if workers > 1 and self.single_process:
            return "several workers need stores that they can share; one process owns RocksDB or memory"
        if workers > 1 and any(table.cache for table in self.tables.values()):
            return "several workers and a cache do not go together: one would not see at once what another writes"
        return None


def partition_stores(settings: StoreSettings | None, store: str) -> tuple[str, ...]:
    """Return the names of the stores that hold what is in a store: its own, if it is not partitioned."""
    options = settings.options if settings is not None else None
    return options.partitions if isinstance(options, PartitionedSettings) else (store,)
