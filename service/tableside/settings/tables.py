"""Settings of a table and its policies."""

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field, field_validator, model_validator

from ..core import KeyField, KeySchema, PartType, TableSpec
from ..core.store import DELETE_MEMORY_S
from .faults import NAME

KEY_FIELD_LENGTH_MAX = 255
"""Maximum length of the name of a key field."""


class CostSettings(BaseModel, frozen=True, extra="forbid"):
    """The credits that an operation of each kind costs, and the credits for each KiB of values (`kib`).

    A partial KiB counts as a full one. `kib` applies to the values that are sent, and to the values that a get finds,
    which are paid afterwards.
    """

    get: float = Field(default=1.0, ge=0, le=1e6)
    put: float = Field(default=1.0, ge=0, le=1e6)
    update: float = Field(default=1.0, ge=0, le=1e6)
    delete: float = Field(default=1.0, ge=0, le=1e6)
    kib: float = Field(default=0.0, ge=0, le=1e6)


class DirectionSettings(BaseModel, frozen=True, extra="forbid"):
    """Limits, timeouts and retries of a table's reads or writes. Rates are in credits per second.

    `rate_per_s` limits one replica, or all replicas together if the table has a `limiter`. `burst` is the number of
    credits that are available after a pause. The default is the credits of one second. `caller_rate_per_s` limits the
    requested operations of each caller, before the cache, on one replica. `timeout_s` limits one attempt.
    `attempts_max` 1 disables retries. Attempts and pauses end `retry_total_s` after the start of the first attempt, by
    default at the deadline.
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
            raise ValueError("burst requires rate_per_s")
        if self.caller_burst is not None and self.caller_rate_per_s is None:
            raise ValueError("caller_burst requires caller_rate_per_s")
        if self.pause_s > self.pause_max_s:
            raise ValueError("pause_s must be at most pause_max_s")
        if self.backoff == "fixed" and self.retry_total_s is not None and self.pause_s >= self.retry_total_s:
            raise ValueError("a fixed pause_s must be less than retry_total_s: otherwise there is no retry")
        return self

    @property
    def retries_configured(self) -> bool:
        """Whether the configuration sets `attempts_max`, and above 1."""
        return "attempts_max" in self.model_fields_set and self.attempts_max > 1


class BatchSettings(BaseModel, frozen=True, extra="forbid"):
    """Limits for one call of the store, and whether concurrent single operations are coalesced into one call.

    `linger_s` 0 coalesces the operations that arrive in the same iteration of the event loop. Null disables
    coalescing. `share_reads` coalesces single gets of a remote store even if `linger_s` is null.
    """

    operations_max: int = Field(default=1000, ge=1, le=100_000)
    bytes_max: int = Field(default=4 * 2**20, ge=1024, le=2**30)
    linger_s: float | None = Field(default=None, ge=0, le=1)
    share_reads: bool = True


class CacheSettings(BaseModel, frozen=True, extra="forbid"):
    """The size of a table's cache in this process, and how long records stay in it.

    `writes` selects the effect of a write on the cache: "around" removes the record, "through" stores the written
    value if it is known. `channel` names a store of kind redis that replicas use to invalidate each other's caches.
    """

    records_max: int = Field(ge=1, le=100_000_000)
    bytes_max: int = Field(default=64 * 2**20, ge=1024, le=2**40)
    ttl_s: float = Field(gt=0, le=86400)
    absent_ttl_s: float = Field(default=0, ge=0, le=86400)
    writes: Literal["around", "through"] = "around"
    channel: str | None = None


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
    cost: CostSettings = CostSettings()
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
