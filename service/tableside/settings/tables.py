"""What an operator may set of a table, and of its policies."""

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field, model_validator

from ..core import KeyField, KeySchema, PartType, TableSpec
from .faults import NAME


class CostSettings(BaseModel, frozen=True, extra="forbid"):
    """How many credits an operation of each kind costs, and beside that each KiB of values.

    A KiB counts in full once it is begun: of what is sent, and of what a get has found, which is paid afterwards.
    """

    get: float = Field(default=1.0, ge=0, le=1e6)
    put: float = Field(default=1.0, ge=0, le=1e6)
    update: float = Field(default=1.0, ge=0, le=1e6)
    delete: float = Field(default=1.0, ge=0, le=1e6)
    kib: float = Field(default=0.0, ge=0, le=1e6)


class DirectionSettings(BaseModel, frozen=True, extra="forbid"):
    """What the reads, or the writes, of a table may do: credits per second, seconds, and calls of the store.

    `rate_per_s` is of one replica, or of all together where the table names a `limiter`; `burst` is how many credits
    may be used at once, a second's worth if not given. `caller_rate_per_s` bounds each caller by name, in operations
    as they are asked, before the cache; it is of one replica. `timeout_s` bounds one attempt; `attempts_max` 1 is no
    retry, and attempts and their pauses end `retry_total_s` after the first began, at the deadline if not given.
    """

    rate_per_s: float | None = Field(default=None, gt=0, le=1e9)
    burst: float | None = Field(default=None, ge=1, le=1e9)
    caller_rate_per_s: float | None = Field(default=None, gt=0, le=1e9)
    caller_burst: float | None = Field(default=None, ge=1, le=1e9)
    timeout_s: float | None = Field(default=None, gt=0, le=3600)
    attempts_max: int = Field(default=3, ge=1, le=100)
    backoff: Literal["exponential", "fixed", "none"] = "exponential"
    pause_s: float = Field(default=0.05, ge=0, le=60)
    pause_max_s: float = Field(default=2.0, ge=0, le=600)
    retry_total_s: float | None = Field(default=None, gt=0, le=3600)

    @model_validator(mode="after")
    def _consistent(self) -> "DirectionSettings":
        if self.burst is not None and self.rate_per_s is None:
            raise ValueError("burst needs rate_per_s")
        if self.caller_burst is not None and self.caller_rate_per_s is None:
            raise ValueError("caller_burst needs caller_rate_per_s")
        if self.pause_s > self.pause_max_s:
            raise ValueError("pause_s is at most pause_max_s")
        if self.backoff == "fixed" and self.retry_total_s is not None and self.pause_s >= self.retry_total_s:
            raise ValueError("a fixed pause_s is below retry_total_s, else nothing is tried again")
        return self

    @property
    def retries_configured(self) -> bool:
        """Whether the file says how often to try."""
        return "attempts_max" in self.model_fields_set and self.attempts_max > 1


class BatchSettings(BaseModel, frozen=True, extra="forbid"):
    """What one call of the store may hold, and whether single operations wait for each other to share one.

    `linger_s` 0 shares what arrives in one turn of the event loop; null shares nothing.
    """

    operations_max: int = Field(default=1000, ge=1, le=100_000)
    bytes_max: int = Field(default=4 * 2**20, ge=1024, le=2**30)
    linger_s: float | None = Field(default=None, ge=0, le=1)


class CacheSettings(BaseModel, frozen=True, extra="forbid"):
    """How much of a table is kept here, and for how long: records, bytes, seconds.

    `writes` says what a write leaves in the cache: nothing ("around"), or what it wrote where that is known
    ("through"). `channel` names a store of kind redis through which replicas tell each other what they wrote.
    """

    records_max: int = Field(ge=1, le=100_000_000)
    bytes_max: int = Field(default=64 * 2**20, ge=1024, le=2**40)
    ttl_s: float = Field(gt=0, le=86400)
    absent_ttl_s: float = Field(default=0, ge=0, le=86400)
    writes: Literal["around", "through"] = "around"
    channel: str | None = None


class TableSettings(BaseModel, frozen=True, extra="forbid"):
    """One table: where its records are, and how it answers; times in seconds."""

    store: str
    name: str | None = Field(default=None, pattern=NAME)
    key: dict[str, PartType] | None = Field(default=None, min_length=1, max_length=8)
    create: bool = False
    ttl_s: float | None = Field(default=None, gt=0)
    consistency: Literal["strong", "eventual"] = "strong"
    deadline_s: float = Field(default=10.0, gt=0, le=3600)
    read: DirectionSettings = DirectionSettings()
    write: DirectionSettings = DirectionSettings()
    cost: CostSettings = CostSettings()
    limiter: str | None = None
    batch: BatchSettings | None = None
    cache: CacheSettings | None = None
    concurrency_max: int = Field(default=64, ge=1, le=100_000)

    def spec(self, name: str, options: BaseModel | None = None) -> TableSpec:
        """Return what a store must know of this table; `options` are what only its kind of store can be told."""
        fields = tuple(KeyField(field, kind) for field, kind in self.key.items()) if self.key else (KeyField(),)
        return TableSpec(
            name,
            KeySchema(fields),
            stored_as=self.name,
            ttl_s=self.ttl_s,
            key_given=self.key is not None,
            create=self.create,
            consistency=self.consistency,
            options=options,
        )


TableLocation: TypeAlias = tuple[str, str]
"""Where records of a table are: the name of a store, and the table's name in it."""
