"""The validated configuration: the settings of tables and their policies, and of the service as a whole."""

import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from pydantic import AfterValidator, BaseModel, Field, IPvAnyNetwork, WithJsonSchema, field_validator, model_validator

from .. import stores
from ..auth import AuthSettings
from ..core import KeyField, KeySchema, PartType, TableSpec
from ..core.store import DELETE_MEMORY_S, VALUE_BYTES_MAX
from ..policies import RetrySchedule
from ..stores import PartitionedSettings
from ..telemetry import LogSettings, TraceSettings
from .faults import NAME

KEY_FIELD_LENGTH_MAX = 255
"""Maximum length of the name of a key field."""


class DirectionSettings(RetrySchedule, frozen=True):
    """Limits, timeouts and retries of a table's reads or writes. Rates are in operations per second.

    `rate_per_s` limits one replica, or all replicas together if the table has a `limiter`. `burst` is the number of
    operations that may pass at once after a pause. The default is that of one second. `timeout_s` limits one attempt.
    `attempts_max` 1 disables retries.
    """

    rate_per_s: float | None = Field(default=None, gt=0, le=1e9)
    burst: float | None = Field(default=None, ge=1, le=1e9)
    timeout_s: float | None = Field(default=None, gt=0, le=3600)

    @model_validator(mode="after")
    def _check_bursts(self) -> "DirectionSettings":
        if self.burst is not None and self.rate_per_s is None:
            raise ValueError("burst requires rate_per_s")
        return self


class BatchSettings(BaseModel, frozen=True, extra="forbid"):
    """Limits for one call of the store. Larger calls are divided."""

    operations_max: int = Field(default=1000, ge=1, le=100_000)
    bytes_max: int = Field(default=4 * 2**20, ge=1024, le=2**30)


class CacheSettings(BaseModel, frozen=True, extra="forbid"):
    """The size of a table's cache in this process, and how long records stay in it. A write removes its record."""

    records_max: int = Field(ge=1, le=100_000_000)
    bytes_max: int = Field(default=64 * 2**20, ge=1024, le=2**40)
    ttl_s: float = Field(gt=0, le=86400)
    absent_ttl_s: float = Field(default=0, ge=0, le=86400)


class TableSettings(BaseModel, frozen=True, extra="forbid"):
    """One table: its store, its key, and its policies. Times are in seconds.

    `delete_memory_s` is how long an absent record keeps the orders of its writes. An ordered write that arrives later
    counts as new. `generations` allows replacing the whole table. A table keeps the `generations_kept` contents that
    were current most recently, and removes one that loads and was not written for `generations_idle_s`.
    """

    store: str
    name: str | None = Field(default=None, pattern=NAME)
    key: dict[str, PartType] | None = Field(default=None, min_length=1, max_length=8)
    create: bool = False
    ttl_s: float | None = Field(default=None, gt=0)
    delete_memory_s: float = Field(default=DELETE_MEMORY_S, gt=0, le=10 * 366 * 86_400)
    consistency: Literal["strong", "eventual"] = "strong"
    deadline_s: float = Field(default=10.0, gt=0, le=3600)
    read: DirectionSettings = DirectionSettings()
    write: DirectionSettings = DirectionSettings()
    limiter: str | None = None
    batch: BatchSettings | None = None
    cache: CacheSettings | None = None
    concurrency_max: int = Field(default=64, ge=1, le=100_000)
    generations: bool = False
    generations_kept: int = Field(default=1, ge=0, le=100)
    generations_idle_s: float = Field(default=3600.0, ge=1, le=10 * 366 * 86_400)

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: dict[str, PartType] | None) -> dict[str, PartType] | None:
        if not all(0 < len(name) <= KEY_FIELD_LENGTH_MAX and "\0" not in name for name in key or ()):
            raise ValueError(f"a name has 1 to {KEY_FIELD_LENGTH_MAX} characters, and none of them is U+0000")
        return key

    def spec(self, name: str, options: BaseModel | None = None) -> TableSpec:
        """Return the table's description for its store. `options` are the options of that kind of store."""
        fields = tuple(KeyField(field, kind) for field, kind in self.key.items()) if self.key else (KeyField(),)
        return TableSpec(
            name,
            KeySchema(fields),
            stored_as=self.name,
            ttl_s=self.ttl_s,
            key_given=self.key is not None,
            create=self.create,
            delete_memory_s=self.delete_memory_s,
            consistency=self.consistency,
            options=options,
        )


TableLocation: TypeAlias = tuple[str, str]
"""Where a table keeps records: the name of a store, and the table's name in that store."""

HostName = Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$")]
"""A host name as clients send it, without a port. `*.` in front matches every name below it."""

ROOT_PATH = re.compile("(?!/(v1|console|docs)(/|$))(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
"""The pattern of a prefix of the service's paths. It does not begin with one of these paths."""


def _checked_root_path(text: str) -> str:
    if text and not ROOT_PATH.fullmatch(text):
        raise ValueError("must be a path such as /tableside, with no slash at its end, and not /v1, /console or /docs")
    return text


RootPath = Annotated[str, AfterValidator(_checked_root_path)]
Network = Annotated[IPvAnyNetwork, WithJsonSchema({"type": "string", "format": "IP address or network"})]


class LimitSettings(BaseModel, frozen=True, extra="forbid"):
    """Limits for one request, and for all requests in flight.

    Sizes are counted after decompression. `value_bytes_max` limits the JSON text of each value that is written. Larger
    values delay other requests. The service immediately rejects a request that exceeds a limit on requests in
    flight. `in_flight_max` limits the number of requests. `operations_in_flight_max` limits the number of their
    operations. `bytes_in_flight_max` limits the bytes of their bodies. With several stores, one store may use at most
    the fraction `store_share_max` of the part of these three limits that the other stores leave free. One caller may
    use at most the fraction `caller_share_max` of the part that the other callers leave free. `caller_rate_per_s`
    limits the operations of each caller in all tables together, on one replica. After SIGTERM the service continues for
    `drain_s` seconds: it answers /readyz with 503, and closes each connection after its next response. Then it accepts
    no more connections. The process ends at most `shutdown_s` seconds after the signal.
    """

    body_bytes_max: int = Field(default=16 * 2**20, ge=1024)
    value_bytes_max: int = Field(default=VALUE_BYTES_MAX, ge=1024, le=16 * 2**20)
    operations_max: int = Field(default=10_000, ge=1)
    response_bytes_max: int = Field(default=64 * 2**20, ge=1024)
    in_flight_max: int = Field(default=1024, ge=1)
    operations_in_flight_max: int = Field(default=100_000, ge=1)
    bytes_in_flight_max: int = Field(default=256 * 2**20, ge=1024)
    store_share_max: float = Field(default=0.75, gt=0, le=1)
    caller_share_max: float = Field(default=1, gt=0, le=1)
    caller_rate_per_s: float | None = Field(default=None, gt=0, le=1e9)
    drain_s: float = Field(default=0.5, ge=0, le=600)
    shutdown_s: float = Field(default=30.0, ge=1, le=3600)


class RetryBudgetSettings(BaseModel, frozen=True, extra="forbid"):
    """The limit on retries against one store: `share` of its operations, and `per_s` more each second."""

    share: float = Field(default=0.2, ge=0, le=10)
    per_s: float = Field(default=10.0, ge=0, le=1e6)


class ConsoleSettings(BaseModel, frozen=True, extra="forbid"):
    """The web console at /console: whether it is served."""

    enabled: bool = True


class StoreSettings(msgspec.Struct, frozen=True):
    """One store: its kind, and the options of that kind."""

    kind: str
    options: BaseModel


class ServiceSettings(BaseModel, frozen=True, extra="forbid"):
    """The members of a configuration that are validated alone."""

    limits: LimitSettings = LimitSettings()
    auto_create: bool = False
    default_store: str | None = None
    retry_budget: RetryBudgetSettings = RetryBudgetSettings()
    logs: LogSettings = LogSettings()
    traces: TraceSettings = TraceSettings()
    console: ConsoleSettings = ConsoleSettings()
    hosts: tuple[HostName, ...] = Field(default=(), max_length=100)
    """The accepted host names. None accepts every name, or only the names of this machine if there is no `auth`."""
    root_path: RootPath = ""
    """The prefix of the service's paths behind a reverse proxy."""
    trusted_proxies: tuple[Network, ...] = Field(default=(), max_length=100)
    """The addresses of the proxies whose headers `X-Forwarded-Prefix` and `X-Forwarded-For` the service uses."""


class Settings(ServiceSettings, frozen=True, arbitrary_types_allowed=True):
    """A validated configuration. `options` are the options of each table that depend on its kind of store."""

    stores: dict[str, StoreSettings]
    tables: dict[str, TableSettings] = {}
    auth: AuthSettings | None = None
    options: dict[str, BaseModel] = {}

    def locations(self, store: str, name: str) -> frozenset[TableLocation]:
        """Return the locations of a table's records: one for each partition if the store is partitioned."""
        return frozenset((part, name) for part in self.stores_of(store))

    def stores_of(self, store: str) -> tuple[str, ...]:
        """Return the names of the stores that keep a store's records: its partitions, or itself if it has none."""
        options = self.stores[store].options if store in self.stores else None
        return options.partitions if isinstance(options, PartitionedSettings) else (store,)

    def workers_fault(self, workers: int) -> str | None:
        """Return why this number of worker processes cannot serve the configuration, or None if it can."""
        if workers == 1:
            return None
        if any(stores.backend_type(store.kind).single_process for store in self.stores.values()):
            return "several workers need stores that processes can share; RocksDB and memory belong to one process"
        if any(table.cache for table in self.tables.values()):
            return "a cache needs a single worker: a worker would not see the writes of the others"
        return None
