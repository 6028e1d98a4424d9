"""Everything an operator may set, with units, limits and defaults; and every fault in a file, found at once."""

import os
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import yaml
from pydantic import AfterValidator, BaseModel, Field, RootModel, SecretStr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from . import stores
from .keys import KeyField, KeySchema, PartType
from .store import TableSpec
from .stores.partitioned.backend import PartitionedSettings

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"

Model = TypeVar("Model", bound=BaseModel)

TOKENS_MAX = 10_000
PATTERNS_MAX = 1000
"""How many tokens the configuration has, and how many patterns of tables each of them to read, and to write."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class LimitSettings(BaseModel, frozen=True, extra="forbid"):
    """What one request may be, and how much at once; sizes are counted after decompression.

    In flight are requests (`in_flight_max`), their operations, and the bytes of their bodies; what comes above is
    refused at once. On SIGTERM the service goes on for `drain_s` seconds with /readyz at 503 and connections that are
    closed after the next answer, then accepts nothing more; it has ended `shutdown_s` after the signal at the latest.
    """

    body_bytes_max: int = Field(default=16 * 2**20, ge=1024)
    operations_max: int = Field(default=10_000, ge=1)
    response_bytes_max: int = Field(default=64 * 2**20, ge=1024)
    in_flight_max: int = Field(default=1024, ge=1)
    operations_in_flight_max: int = Field(default=100_000, ge=1)
    bytes_in_flight_max: int = Field(default=256 * 2**20, ge=1024)
    drain_s: float = Field(default=0.5, ge=0, le=600)
    shutdown_s: float = Field(default=30.0, ge=1, le=3600)


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
    def tries_again(self) -> bool:
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


class RetryBudgetSettings(BaseModel, frozen=True, extra="forbid"):
    """How much may be tried again of what is asked of one store: a share of it, and so much a second beside that."""

    share: float = Field(default=0.2, ge=0, le=10)
    per_s: float = Field(default=10.0, ge=0, le=1e6)


class LogSettings(BaseModel, frozen=True, extra="forbid"):
    """What is logged: from which level on, which share of the requests that succeeded, and what counts as slow."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
    requests: float = Field(default=0.01, ge=0, le=1)
    slow_s: float = Field(default=1.0, gt=0, le=3600)


class TraceSettings(BaseModel, frozen=True, extra="forbid"):
    """Where traces go, by OTLP over HTTP, and which share of those that begin here; none goes anywhere without one."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    sample: float = Field(default=0.01, ge=0, le=1)


class ConsoleSettings(BaseModel, frozen=True, extra="forbid"):
    """The page for people, /console: whether there is one, and whether records can be changed on it."""

    enabled: bool = True
    edit: bool = False


def _checked_digest(digest: SecretStr) -> SecretStr:
    if not re.fullmatch("[0-9a-fA-F]{64}", text := digest.get_secret_value()):
        raise PydanticCustomError("digest", "is the SHA-256 digest of a token, in 64 hexadecimal digits")
    if text.lower() == _DIGEST_OF_NOTHING:
        raise PydanticCustomError("digest", "is the digest of an empty token")
    return digest


_DIGEST_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

TablePatterns = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*?!\[\]-]{1,200}$")], ...], Field(max_length=PATTERNS_MAX)
]
"""Names of tables, in which `*` is anything, `?` one character, and `[ab]` one of these."""


class TokenSettings(BaseModel, frozen=True, extra="forbid"):
    """One bearer token, known by its digest only: whose it is, and which tables it may read and write.

    `admin` is about the service itself, and gives no right on a table.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:/-]{0,127}$")
    sha256: Annotated[SecretStr, AfterValidator(_checked_digest)]
    read: TablePatterns = ()
    write: TablePatterns = ()
    admin: bool = False


Tokens = Annotated[tuple[TokenSettings, ...], Field(max_length=TOKENS_MAX)]


class AuthSettings(BaseModel, frozen=True, extra="forbid"):
    """Who may ask. `tokens` are those of the file too, once it is read; `metrics` says who may see /metrics."""

    tokens: Tokens = ()
    tokens_file: str | None = None
    metrics: Literal["open", "admin"] = "open"


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


Place: TypeAlias = tuple[str, str]
"""Where records of a table are: the name of a store, and the table's name in it."""


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

    def places(self, store: str, name: str) -> frozenset[Place]:
        """Return where a table of that name in a store has its records: of a partitioned one, in each of its stores."""
        return frozenset((part, name) for part in _parts(self.stores.get(store), store))

    def refusal_of(self, workers: int) -> str | None:
        """Return why so many processes cannot serve this together, if they cannot."""
        if workers > 1 and self.single_process:
            return "several workers need stores that they can share; one process owns RocksDB or memory"
        if workers > 1 and any(table.cache for table in self.tables.values()):
            return "several workers and a cache do not go together: one would not see at once what another writes"
        return None


def _parts(settings: StoreSettings | None, store: str) -> tuple[str, ...]:
    """Return the names of the stores that hold what is in a store: its own, if it is not partitioned."""
    options = settings.options if settings is not None else None
    return options.partitions if isinstance(options, PartitionedSettings) else (store,)


class Fault(msgspec.Struct, frozen=True, order=True):
    """Something wrong in a configuration, and where."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SettingsError(Exception):
    """A configuration has faults; `faults` are all of them."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


def default_settings(path: str = "./tableside-data") -> Settings:
    """Return what holds where no configuration is given: RocksDB here, and tables made as they are written to."""
    return checked({"stores": {"local": {"kind": "rocksdb", "path": path}}, "auto_create": True})


def load(file: str | Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read a configuration file. Raise SettingsError with every fault in it."""
    return checked(_read(file, ""), os.environ if environment is None else environment)


def _read(file: str | Path, path: str) -> Any:
    """Return the data in a YAML file. Raise SettingsError, with that path, if there is none that can be read."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        return yaml.load(text, _UniqueLoader)  # noqa: S506  # a subclass of the safe loader
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([Fault(path, f"{file} cannot be read: {error}")]) from None
    except yaml.YAMLError as error:
        raise SettingsError([Fault(path, f"{file} is not YAML: {_problem(error)}")]) from None
    except (ValueError, RecursionError):  # a date that there is not, say; or mappings in mappings without end
        raise SettingsError(
            [Fault(path, f"{file} has a value that cannot be read, such as a date that there is not")]
        ) from None


def checked(data: object, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that the data of a configuration file make. Raise SettingsError with every fault."""
    faults: list[Fault] = []
    data = _expanded(data, environment or {}, "", faults)
    if not isinstance(data, dict):
        raise SettingsError([Fault("", "a configuration is a mapping that has stores and tables")])
    reader = _Reader(faults)
    settings = reader.settings(data)
    if faults:
        raise SettingsError(sorted(set(faults)))
    return settings


class _Top(BaseModel, extra="forbid"):
    stores: dict[str, dict[str, Any]] = Field(min_length=1)
    tables: dict[str, Any] = {}
    limits: LimitSettings = LimitSettings()
    auto_create: bool = False
    default_store: str | None = None
    retry_budget: RetryBudgetSettings = RetryBudgetSettings()
    logs: LogSettings = LogSettings()
    traces: TraceSettings = TraceSettings()
    console: ConsoleSettings = ConsoleSettings()
    auth: Any = None  # read by itself, so that all its faults are found beside the others


class _TokensFile(RootModel[Tokens], frozen=True):
    pass


class _Reader:
    """Makes settings out of data and goes on after a fault, to find the others."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._options: dict[str, BaseModel] = {}
        self._unset = {fault.path for fault in faults}

    def settings(self, data: dict[str, Any]) -> Settings:
        top = self._model(_Top, data, "") or self._without_the_rest(data)
        stores = {name: self._store(name, entry) for name, entry in top.stores.items()}
        known = data.get("stores")
        tables = {
            name: self._table(name, entry, known if isinstance(known, dict) else {})
            for name, entry in top.tables.items()
        }
        self._check_defaults(top)
        opened = {name: table for name, table in tables.items() if table}
        self._check_partitioned(top.stores)
        self._check_places(opened, stores)
        self._check_shared(opened, known if isinstance(known, dict) else {})
        return Settings(
            {name: store for name, store in stores.items() if store},
            opened,
            top.limits,
            top.auto_create,
            top.default_store or next(iter(stores), None),
            top.retry_budget,
            top.logs,
            top.traces,
            top.console,
            self._auth(data["auth"]) if "auth" in data else None,
            self._options,
        )

    def _without_the_rest(self, data: dict[str, Any]) -> _Top:
        """Keep what can be looked at further though something beside it is wrong."""
        kept = {name: data[name] for name in ("stores", "tables") if isinstance(data.get(name), dict)}
        kept["stores"] = {name: entry for name, entry in kept.get("stores", {}).items() if isinstance(entry, dict)}
        flag, default = data.get("auto_create"), data.get("default_store")
        return _Top.model_construct(
            **kept,
            auto_create=flag if isinstance(flag, bool) else False,
            default_store=default if isinstance(default, str) else None,
        )

    def _store(self, name: str, entry: dict[str, Any]) -> StoreSettings | None:
        path = f"stores.{name}"
        self._check_name(name, path)
        kind = entry.get("kind")
        if kind not in stores.kinds():
            self._fault(f"{path}.kind", f"is one of {', '.join(stores.kinds())}")
            return None
        try:
            model = stores.backend_type(str(kind)).Settings
        except ImportError as error:
            self._fault(f"{path}.kind", str(error))
            return None
        options = self._model(model, {key: value for key, value in entry.items() if key != "kind"}, path)
        return StoreSettings(str(kind), options) if options else None

    def _table(self, name: str, entry: object, known: dict[str, Any]) -> TableSettings | None:
        path = f"tables.{name}"
        self._check_name(name, path)
        if not isinstance(entry, dict):
            return self._model(TableSettings, entry, path)
        store = entry.get("store")
        if isinstance(store, str) and store not in known:
            self._fault(f"{path}.store", f"no store has the name {store!r}")
        options_type = _table_options(known.get(store), known) if isinstance(store, str) else None
        if options_type is None:
            return self._model(TableSettings, entry, path)
        common = {member: value for member, value in entry.items() if member in TableSettings.model_fields}
        own = {member: value for member, value in entry.items() if member not in common}
        if (options := self._model(options_type, own, path)) is not None:
            self._options[name] = options
        return self._model(TableSettings, common, path)

    def _auth(self, entry: object) -> AuthSettings | None:
        """Return who may ask, with the tokens of the file among the others."""
        given = entry if isinstance(entry, dict) else {}
        auth = self._model(AuthSettings, entry, "auth")
        if isinstance(entry, dict) and not (given.get("tokens") or given.get("tokens_file")):
            self._fault("auth", "has tokens or a tokens_file: without them nobody could ask anything")
        listed = self._tokens_file(given.get("tokens_file"))
        more = self._model(_TokensFile, listed, "auth.tokens_file")
        self._check_tokens({"auth.tokens": given.get("tokens"), "auth.tokens_file": listed})
        return auth.model_copy(update={"tokens": auth.tokens + more.root}) if auth and more else None

    def _tokens_file(self, file: object) -> object:
        if not isinstance(file, str):
            return []
        try:
            return _read(file, "auth.tokens_file")
        except SettingsError as error:
            for fault in error.faults:
                self._fault(fault.path, fault.message)
            return []

    def _check_tokens(self, lists: Mapping[str, object]) -> None:
        """See to it that one token has one name, and one name one token."""
        first: dict[tuple[str, str], str] = {}
        for path, tokens in lists.items():
            for index, token in enumerate(tokens if isinstance(tokens, list) else []):
                for member in ("name", "sha256"):
                    given = token.get(member) if isinstance(token, dict) else None
                    text = given.lower() if isinstance(given, str) and member == "sha256" else given
                    where = f"{path}.{index}.{member}"
                    if isinstance(text, str) and first.setdefault((member, text), where) != where:
                        self._fault(where, f"is the same as {first[member, text]}")

    def _check_defaults(self, top: _Top) -> None:
        if top.default_store is not None and top.default_store not in top.stores:
            self._fault("default_store", f"no store has the name {top.default_store!r}")
        if top.auto_create and top.default_store is None and len(top.stores) > 1:
            self._fault("default_store", "auto_create needs it where there are several stores")

    def _check_places(self, tables: Mapping[str, TableSettings], known: Mapping[str, StoreSettings | None]) -> None:
        places: dict[Place, str] = {}
        for name, table in tables.items():
            for part in _parts(known.get(table.store), table.store):
                first = places.setdefault((part, table.name or name), name)
                if first != name:
                    self._fault(f"tables.{name}.name", f"table {first!r} keeps its records there")
                    break

    def _check_partitioned(self, known: Mapping[str, Any]) -> None:
        """See to it that what is made of other stores is made of different ones that keep records themselves."""
        for name, entry in known.items():
            parts: object = entry.get("partitions") if entry.get("kind") == "partitioned" else None
            if not isinstance(parts, list):
                continue
            for index, part in enumerate(parts):
                if isinstance(part, str) and (fault := _fault_of_part(part, parts[:index], known)):
                    self._fault(f"stores.{name}.partitions.{index}", fault)

    def _check_shared(self, tables: Mapping[str, TableSettings], known: dict[str, Any]) -> None:
        """See to it that what replicas share is on a store that can carry it."""
        for name, table in tables.items():
            named = {"limiter": table.limiter, "cache.channel": table.cache.channel if table.cache else None}
            for member, store in named.items():
                entry = known.get(store) if store is not None else {"kind": "redis"}
                if not isinstance(entry, dict) or entry.get("kind") != "redis":
                    self._fault(f"tables.{name}.{member}", f"names a store of kind redis, which {store!r} is not")

    def _check_name(self, name: str, path: str) -> None:
        if not re.fullmatch(NAME, name):
            self._fault(path, "a name has 1 to 128 of A-Z a-z 0-9 _ . - and begins with a letter or digit")

    def _model(self, model: type[Model], data: object, path: str) -> Model | None:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for fault in error.errors(include_url=False, include_input=False):
                self._fault(".".join([path, *map(str, fault["loc"])]).strip("."), _message(fault["type"], fault["msg"]))
            return None

    def _fault(self, path: str, message: str) -> None:
        if path in self._unset:
            return  # What stands there is not what will stand there.
        self._faults.append(Fault(path, message))


def _fault_of_part(part: str, before: list[object], known: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a partition of that name, after others."""
    if part not in known:
        return f"no store has the name {part!r}"
    if part in before:
        return f"{part!r} is partition {before.index(part)} already"
    if known[part].get("kind") == "partitioned":
        return f"{part!r} is partitioned itself"
    return None


def _table_options(store: object, known: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return what can be said of a table in a store of the file; None where the store is itself at fault.

    Of one in a partitioned store that is what can be said of it in every partition, if these are of one kind.
    """
    kind = store.get("kind") if isinstance(store, dict) else None
    if isinstance(store, dict) and kind == "partitioned":
        parts = store.get("partitions")
        every = [known.get(part) for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
        kinds = {part.get("kind") for part in every if isinstance(part, dict)}
        kind = kinds.pop() if len(kinds) == 1 and "partitioned" not in kinds else kind
    try:
        return stores.backend_type(kind).TableOptions if kind in stores.kinds() else None
    except ImportError:
        return None


class _UniqueLoader(yaml.SafeLoader):
    """Reads YAML, and refuses a mapping that names a member twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _problem(error: yaml.YAMLError) -> str:
    """Say in one line what is wrong and where, and nothing of what stands there."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = _NAMED.sub(r"\1", error.problem or "")
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    return " ".join(str(error).split())


_NAMED = re.compile(r"\b(alias|anchor|the tag|tag handle) .*", re.DOTALL)
"""What is named where text is taken for YAML's own: a password without quotes may begin with `*` or `!`."""


def _expanded(data: object, environment: Mapping[str, str], path: str, faults: list[Fault]) -> object:
    """Return the data with `${NAME}` replaced in every text."""
    if isinstance(data, dict):
        return {
            str(name): _expanded(member, environment, f"{path}.{name}".strip("."), faults)
            for name, member in data.items()
        }
    if isinstance(data, list):
        return [_expanded(member, environment, f"{path}.{index}", faults) for index, member in enumerate(data)]
    if not isinstance(data, str):
        return data
    missing = [name for name in _VARIABLE.findall(data) if name not in environment]
    faults.extend(Fault(path, f"the environment variable {name} is not set") for name in missing)
    return _VARIABLE.sub(lambda match: environment.get(match[1], match[0]), data)


def _message(kind: str, message: str) -> str:
    return "is not known here" if kind == "extra_forbidden" else message[:1].lower() + message[1:]
