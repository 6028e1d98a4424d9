"""Loads and validates a configuration, also members that are valid alone and conflict with each other."""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, RootModel

from .. import stores
from ..auth import AuthSettings, Tokens
from ..core.store import GENERATION_IN_STORE
from .faults import NAME, Fault, Faults, SettingsError, similar
from .settings import ServiceSettings, Settings, StoreSettings, TableLocation, TableSettings
from .yaml_file import expand_variables, parse_yaml, read_text


def default_settings() -> Settings:
    """Return the settings that apply without a configuration file: RocksDB, and tables created on first write."""
    return validate({"stores": {"local": {"kind": "rocksdb", "path": "./tableside-data"}}, "auto_create": True})


def load(file: str | Path, environment: Mapping[str, str] | None = None, *, directory: Path | None = None) -> Settings:
    """Read a configuration file. Raise SettingsError with every fault in it.

    A relative `auth.tokens_file` is in the `directory`, by default that of the file.
    """
    return load_text(read_text(file), environment, directory=Path(file).parent if directory is None else directory)


def load_text(text: str, environment: Mapping[str, str] | None = None, *, directory: Path) -> Settings:
    """Return the settings for the text of a configuration file. Raise SettingsError with every fault in it."""
    faults = Faults()
    data = parse_yaml(text, "", faults)
    return validate(data, os.environ if environment is None else environment, faults, directory=directory)


def tokens_file_of(text: str, directory: Path) -> str | None:
    """Return the `auth.tokens_file` of a configuration that may have faults, None if it cannot be found."""
    try:
        data = expand_variables(parse_yaml(text, "", Faults()), os.environ, "", Faults())
    except SettingsError:
        return None
    return _locate_tokens_file(data, directory) if isinstance(data, dict) else None


def validate(
    data: object,
    environment: Mapping[str, str] | None = None,
    faults: Faults | None = None,
    *,
    directory: Path = Path(),  # immutable
) -> Settings:
    """Return the settings for the data of a configuration file in a directory. Raise SettingsError with every fault.

    `faults` are the faults that were found when the file was read.
    """
    faults = faults or Faults()
    data = expand_variables(data, environment or {}, "", faults)
    if not isinstance(data, dict):
        raise SettingsError([*faults.found, Fault("", "the configuration must be a mapping with stores and tables")])
    _locate_tokens_file(data, directory)
    faults.unread = {fault.path for fault in faults.found}
    settings = _Builder(data, faults).settings()
    if faults.found:
        raise SettingsError(sorted({*faults.found}))
    return settings


def _locate_tokens_file(data: dict[str, Any], directory: Path) -> str | None:
    """Replace the path of the file with tokens by one that does not depend on the current directory. Return it."""
    auth = data.get("auth")
    file = auth.get("tokens_file") if isinstance(auth, dict) else None
    if not isinstance(auth, dict) or not isinstance(file, str):
        return None
    auth["tokens_file"] = located = str(directory / file)
    return located


class _FileModel(ServiceSettings, frozen=True):
    stores: dict[str, dict[str, Any]] = Field(min_length=1)
    tables: dict[str, Any] = Field(default={})
    auth: Any = None  # validated separately, so that its faults are reported together with the others


class _Builder:
    """Builds settings from data. Continues after a fault, to find all of them."""

    def __init__(self, data: dict[str, Any], faults: Faults) -> None:
        self._data = data
        self._faults = faults
        known = data.get("stores")
        self._known: dict[str, Any] = known if isinstance(known, dict) else {}
        self._option_types = {name: _table_options(entry, self._known) for name, entry in self._known.items()}
        self._options: dict[str, BaseModel] = {}

    def settings(self) -> Settings:
        faults = self._faults
        top = faults.validate(_FileModel, self._data, "") or self._valid_parts()
        stores = {name: self._store(name, entry) for name, entry in top.stores.items()}
        tables = {name: self._table(name, entry) for name, entry in top.tables.items()}
        parts = {name: getattr(top, name) for name in ServiceSettings.model_fields}
        parts["default_store"] = top.default_store or next(iter(stores), None)
        settings = Settings(
            stores={name: store for name, store in stores.items() if store},
            tables={name: table for name, table in tables.items() if table},
            auth=read_auth(self._data["auth"], faults) if "auth" in self._data else None,
            options=self._options,
            **parts,
        )
        check_defaults(top, faults)
        check_partitions(top.stores, faults)
        check_directories(settings, faults)
        check_locations(settings, faults)
        check_specs(settings, faults)
        check_limiters(settings, self._known, faults)
        return settings

    def _valid_parts(self) -> _FileModel:
        """Return the parts that can still be validated although other parts are invalid."""
        tables, flag, default = map(self._data.get, ("tables", "auto_create", "default_store"))
        return _FileModel.model_construct(
            stores={name: entry for name, entry in self._known.items() if isinstance(entry, dict)},
            tables=tables if isinstance(tables, dict) else {},
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

    def _table(self, name: str, entry: object) -> TableSettings | None:
        path = f"tables.{name}"
        self._check_name(name, path)
        store = entry.get("store") if isinstance(entry, dict) else None
        if isinstance(store, str) and store not in self._known:
            self._faults.add(f"{path}.store", f"there is no store {store!r}" + similar(store, self._known))
        options_type = self._option_types.get(store) if isinstance(store, str) else None
        if not isinstance(entry, dict) or options_type is None:
            return self._faults.validate(TableSettings, entry, path)
        common = {member: value for member, value in entry.items() if member in TableSettings.model_fields}
        own = {member: value for member, value in entry.items() if member not in common}
        if (options := self._faults.validate(options_type, own, path, TableSettings)) is not None:
            self._options[name] = options
        return self._faults.validate(TableSettings, common, path)

    def _check_name(self, name: str, path: str) -> None:
        if not re.fullmatch(NAME, name):
            self._faults.add(
                path, "a name has 1 to 128 characters of A-Z a-z 0-9 _ . - and begins with a letter or digit"
            )


def _table_options(store: object, known: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return the model of the options that a table has because of its store, or None if the store is invalid.

    In a partitioned store, the options of the partitions' kind apply, if all partitions have one kind.
    """
    if not isinstance(store, dict):
        return None
    kind, parts = store.get("kind"), store.get("partitions")
    if kind == "partitioned":
        every = [known.get(part) for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
        kinds = {str(part.get("kind")) for part in every if isinstance(part, dict)}
        kind = kinds.pop() if len(kinds) == 1 and "partitioned" not in kinds else kind
    try:
        return stores.backend_type(kind).TableOptions if kind in stores.kinds() else None
    except ImportError:
        return None


def read_auth(entry: object, faults: Faults) -> AuthSettings | None:
    """Return the authentication settings, including the tokens of `tokens_file`, or None if they are invalid."""
    given = entry if isinstance(entry, dict) else {}
    auth = faults.validate(AuthSettings, entry, "auth")
    if isinstance(entry, dict) and not any(given.get(member) for member in ("tokens", "tokens_file", "issuers")):
        faults.add("auth", "needs tokens, a tokens_file or issuers: without them every request is rejected")
    listed = _read_tokens_file(given.get("tokens_file"), faults)
    more = faults.validate(_TokensFile, listed, "auth.tokens_file")
    _check_unique({"auth.tokens": given.get("tokens"), "auth.tokens_file": listed}, faults)
    if auth:
        _check_audiences(auth, faults)
    return auth.model_copy(update={"tokens": auth.tokens + more.root}) if auth and more else None


class _TokensFile(RootModel[Tokens], frozen=True):
    pass


def _read_tokens_file(file: object, faults: Faults) -> list[Any]:
    """Return the entries of the file with tokens. If it cannot be read, return an empty list and add a fault."""
    if not isinstance(file, str):
        return []
    try:
        listed = parse_yaml(read_text(file, "auth.tokens_file"), "auth.tokens_file", faults)
    except SettingsError as error:
        for fault in error.faults:
            faults.add(fault.path, fault.message)
        return []
    if not isinstance(listed, list):
        faults.add("auth.tokens_file", f"{file} is not a YAML list of tokens")
        return []
    return listed


def _check_unique(lists: Mapping[str, object], faults: Faults) -> None:
    """Check that no two tokens have the same name, and no two names have the same token."""
    first: dict[tuple[str, str], str] = {}
    for path, tokens in lists.items():
        for index, token in enumerate(tokens if isinstance(tokens, list) else []):
            for member in ("name", "sha256"):
                given = token.get(member) if isinstance(token, dict) else None
                text = given.lower() if isinstance(given, str) and member == "sha256" else given
                where = f"{path}.{index}.{member}"
                if isinstance(text, str) and first.setdefault((member, text), where) != where:
                    faults.add(where, f"is the same as {first[member, text]}")


def _check_audiences(auth: AuthSettings, faults: Faults) -> None:
    """Check that each pair of issuer and audience is configured once, so that one set of rules applies to a token."""
    first: dict[tuple[str, str], str] = {}
    for index, issuer in enumerate(auth.issuers):
        for audience in issuer.audience:
            where = f"auth.issuers.{index}.audience"
            if (before := first.setdefault((issuer.issuer, audience), where)) != where:
                faults.add(where, f"repeats an audience of {before}, which has the same issuer")


def check_defaults(top: _FileModel, faults: Faults) -> None:
    """Check that the tables which `auto_create` creates on their first write have a store."""
    default = top.default_store
    if default is not None and default not in top.stores:
        faults.add("default_store", f"there is no store {default!r}" + similar(default, top.stores))
    if top.auto_create and default is None and len(top.stores) > 1:
        faults.add("default_store", "is required by auto_create if there are several stores")


def check_locations(settings: Settings, faults: Faults) -> None:
    """Check that no two tables keep their records under the same name in the same store.

    No table has the name of another one's generation either.
    """
    locations: dict[TableLocation, str] = {}
    for name, table in settings.tables.items():
        for part in settings.stores_of(table.store):
            first = locations.setdefault((part, table.name or name), name)
            if first != name:
                faults.add(f"tables.{name}.name", f"table {first!r} already keeps its records under this name")
                break
    with_generations = [(name, table) for name, table in settings.tables.items() if table.generations]
    replaced = {(table.store, table.name or name): name for name, table in with_generations}
    for (part, stored), name in locations.items():
        match = re.fullmatch(f"(.+){GENERATION_IN_STORE}[0-9]+", stored)
        if match is not None and (part, match[1]) in replaced:
            base = replaced[part, match[1]]
            faults.add(f"tables.{name}.name", f"is the name of a generation of table {base!r}, which has generations")


def check_specs(settings: Settings, faults: Faults) -> None:
    """Check that each table can exist in its store, or in each of its partitions, as far as settings show that."""
    checks = {
        name: partial(kind.table_faults, store.options)
        for name, store in settings.stores.items()
        if hasattr(kind := stores.backend_type(store.kind), "table_faults")
    }
    for name, table in settings.tables.items():
        spec, parts = table.spec(name, settings.options.get(name)), settings.stores_of(table.store)
        for detail in sorted({error.detail for part in parts if part in checks for error in checks[part](spec)}):
            faults.add(f"tables.{name}", detail)


def check_directories(settings: Settings, faults: Faults) -> None:
    """Check that no two stores share a directory, that none is within another, and that none is a file."""
    places = {
        name: Path(store.options.directory)
        for name, store in settings.stores.items()
        if hasattr(store.options, "directory")
    }
    first: dict[Path, str] = {}
    for name, place in places.items():
        if (other := first.setdefault(place, name)) != name:
            faults.add(f"stores.{name}.path", f"is the directory of store {other!r}")
    for name, place in places.items():
        if outer := next((first[above] for above in place.parents if above in first), None):
            faults.add(f"stores.{name}.path", f"is within the directory of store {outer!r}")
        if file := next((above for above in (place, *place.parents) if os.path.isfile(above)), None):
            faults.add(f"stores.{name}.path", f"{file} is a file, not a directory")


def check_partitions(known: Mapping[str, Any], faults: Faults) -> None:
    """Check that each partition of a partitioned store is another store, and is not partitioned itself."""
    for name, entry in known.items():
        given = entry.get("partitions") if entry.get("kind") == "partitioned" else None
        parts = given if isinstance(given, list) else []
        for index, part in enumerate(parts):
            path = f"stores.{name}.partitions.{index}"
            if not isinstance(part, str):
                continue
            if part not in known:
                faults.add(path, f"there is no store {part!r}" + similar(part, known))
            elif (first := parts.index(part)) != index:
                faults.add(path, f"{part!r} is already partition {first}")
            elif known[part].get("kind") == "partitioned":
                faults.add(path, f"{part!r} is itself partitioned")


def check_limiters(settings: Settings, known: Mapping[str, Any], faults: Faults) -> None:
    """Check that the stores for shared rate limits have the kind redis."""
    for name, table in settings.tables.items():
        entry = known.get(table.limiter) if table.limiter is not None else {"kind": "redis"}
        if not isinstance(entry, dict) or entry.get("kind") != "redis":
            faults.add(f"tables.{name}.limiter", f"must name a store of kind redis; {table.limiter!r} is not one")
