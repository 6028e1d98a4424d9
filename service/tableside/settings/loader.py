"""Loads and validates a configuration."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from .. import stores
from ..telemetry import LogSettings, TraceSettings
from .auth import read_auth
from .cross_checks import (
    check_defaults,
    check_directories,
    check_locations,
    check_partitions,
    check_shared_stores,
    check_specs,
)
from .faults import NAME, Fault, FaultCollector, SettingsError
from .limits import ConsoleSettings, Hosts, LimitSettings, RetryBudgetSettings, RootPath, TrustedProxies
from .settings import Settings, StoreSettings
from .tables import TableSettings
from .variables import expand_variables
from .yaml_file import parse_yaml, read_text


def default_settings(path: str = "./tableside-data") -> Settings:
    """Return the settings that apply without a configuration file: RocksDB, and tables created on first write."""
    return validate({"stores": {"local": {"kind": "rocksdb", "path": path}}, "auto_create": True})


def load(file: str | Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read a configuration file. Raise SettingsError with every fault in it."""
    return load_text(read_text(file), environment)


def load_text(text: str, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings for the text of a configuration file. Raise SettingsError with every fault in it."""
    faults: list[Fault] = []
    data = parse_yaml(text, "", faults)
    return validate(data, os.environ if environment is None else environment, faults)


def tokens_file_of(text: str) -> str | None:
    """Return the `auth.tokens_file` of a configuration that may have faults, None if it cannot be found."""
    try:
        data = expand_variables(parse_yaml(text, "", []), os.environ, "", [])
    except SettingsError:
        return None
    auth = data.get("auth") if isinstance(data, dict) else None
    file = auth.get("tokens_file") if isinstance(auth, dict) else None
    return file if isinstance(file, str) else None


def validate(data: object, environment: Mapping[str, str] | None = None, faults: Sequence[Fault] = ()) -> Settings:
    """Return the settings for the data of a configuration file. Raise SettingsError with every fault.

    `faults` are the faults that were found when the file was read.
    """
    earlier = [*faults]
    data = expand_variables(data, environment or {}, "", earlier)
    if not isinstance(data, dict):
        raise SettingsError([*earlier, Fault("", "the configuration must be a mapping with stores and tables")])
    collector = FaultCollector({fault.path for fault in earlier})
    settings = _Builder(collector).settings(data)
    if found := {*earlier, *collector.found}:
        raise SettingsError(sorted(found))
    return settings


class _FileModel(BaseModel, extra="forbid"):
    stores: dict[str, dict[str, Any]] = Field(min_length=1)
    tables: dict[str, Any] = {}
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
    auth: Any = None  # validated separately, so that its faults are reported together with the others


class _Builder:
    """Builds settings from data. Continues after a fault, to find all of them."""

    def __init__(self, faults: FaultCollector) -> None:
        self._faults = faults
        self._options: dict[str, BaseModel] = {}
        self._option_types: dict[str, type[BaseModel] | None] = {}

    def settings(self, data: dict[str, Any]) -> Settings:
        top = self._faults.validate(_FileModel, data, "") or self._valid_parts(data)
        stores = {name: self._store(name, entry) for name, entry in top.stores.items()}
        known = data.get("stores")
        tables = {
            name: self._table(name, entry, known if isinstance(known, dict) else {})
            for name, entry in top.tables.items()
        }
        opened = {name: table for name, table in tables.items() if table}
        check_defaults(top.auto_create, top.default_store, top.stores, self._faults)
        check_partitions(top.stores, self._faults)
        check_directories(stores, self._faults)
        check_locations(opened, stores, self._faults)
        check_specs(opened, self._options, stores, self._faults)
        check_shared_stores(opened, known if isinstance(known, dict) else {}, self._faults)
        return Settings(
            stores={name: store for name, store in stores.items() if store},
            tables=opened,
            limits=top.limits,
            auto_create=top.auto_create,
            default_store=top.default_store or next(iter(stores), None),
            retry_budget=top.retry_budget,
            logs=top.logs,
            traces=top.traces,
            console=top.console,
            hosts=top.hosts,
            root_path=top.root_path,
            trusted_proxies=top.trusted_proxies,
            auth=read_auth(data["auth"], self._faults) if "auth" in data else None,
            options=self._options,
        )

    def _valid_parts(self, data: dict[str, Any]) -> _FileModel:
        """Return the parts that can still be validated although other parts are invalid."""
        kept = {name: data[name] for name in ("stores", "tables") if isinstance(data.get(name), dict)}
        kept["stores"] = {name: entry for name, entry in kept.get("stores", {}).items() if isinstance(entry, dict)}
        flag, default = data.get("auto_create"), data.get("default_store")
        return _FileModel.model_construct(
            **kept,
            auto_create=flag if isinstance(flag, bool) else False,
            default_store=default if isinstance(default, str) else None,
        )

    def _store(self, name: str, entry: dict[str, Any]) -> StoreSettings | None:
        path = f"stores.{name}"
        self._check_name(name, path)
        kind = entry.get("kind")
        if kind not in stores.kinds():
            self._faults.add(f"{path}.kind", f"must be one of {', '.join(stores.kinds())}")
            return None
        try:
            model = stores.backend_type(str(kind)).Settings
        except ImportError as error:
            self._faults.add(f"{path}.kind", str(error))
            return None
        options = self._faults.validate(model, {key: value for key, value in entry.items() if key != "kind"}, path)
        return StoreSettings(str(kind), options) if options else None

    def _table(self, name: str, entry: object, known: dict[str, Any]) -> TableSettings | None:
        path = f"tables.{name}"
        self._check_name(name, path)
        if not isinstance(entry, dict):
            return self._faults.validate(TableSettings, entry, path)
        store = entry.get("store")
        if isinstance(store, str) and store not in known:
            self._faults.add(f"{path}.store", f"there is no store {store!r}")
        options_type = self._table_options(store, known) if isinstance(store, str) else None
        if options_type is None:
            return self._faults.validate(TableSettings, entry, path)
        common = {member: value for member, value in entry.items() if member in TableSettings.model_fields}
        own = {member: value for member, value in entry.items() if member not in common}
        if (options := self._faults.validate(options_type, own, path, TableSettings)) is not None:
            self._options[name] = options
        return self._faults.validate(TableSettings, common, path)

    def _table_options(self, store: str, known: dict[str, Any]) -> type[BaseModel] | None:
        """Return the model of the options of tables in a store. It is the same for all of them."""
        if store not in self._option_types:
            self._option_types[store] = _table_options(known.get(store), known)
        return self._option_types[store]

    def _check_name(self, name: str, path: str) -> None:
        if not re.fullmatch(NAME, name):
            self._faults.add(
                path, "a name has 1 to 128 characters of A-Z a-z 0-9 _ . - and begins with a letter or digit"
            )


def _table_options(store: object, known: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return the model of the options that a table has because of its store, or None if the store is invalid.

    In a partitioned store, the options of the partitions' kind apply, if all partitions have one kind.
    """
    kind = store.get("kind") if isinstance(store, dict) else None
    if isinstance(store, dict) and kind == "partitioned":
        parts = store.get("partitions")
        every = [known.get(part) for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
        kinds = {str(part.get("kind")) for part in every if isinstance(part, dict)}
        kind = kinds.pop() if len(kinds) == 1 and "partitioned" not in kinds else kind
    try:
        return stores.backend_type(kind).TableOptions if kind in stores.kinds() else None
    except ImportError:
        return None
