"""Checks of members of a configuration that are valid alone and conflict with each other."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from .. import stores
from ..core import TableError, TableSpec
from ..core.backend import ChecksTables, HasDirectory
from ..core.store import GENERATION_IN_STORE
from .faults import FaultCollector
from .settings import StoreSettings, partition_stores
from .tables import TableLocation, TableSettings


def check_defaults(
    auto_create: bool, default_store: str | None, known: Mapping[str, Any], faults: FaultCollector
) -> None:
    """Check that the tables which `auto_create` creates on their first write have a store."""
    if default_store is not None and default_store not in known:
        faults.add("default_store", f"there is no store {default_store!r}")
    if auto_create and default_store is None and len(known) > 1:
        faults.add("default_store", "is required by auto_create if there are several stores")


def check_locations(
    tables: Mapping[str, TableSettings], known: Mapping[str, StoreSettings | None], faults: FaultCollector
) -> None:
    """Check that no two tables keep their records under the same name in the same store.

    No table has the name of another one's generation either.
    """
    locations: dict[TableLocation, str] = {}
    for name, table in tables.items():
        for part in partition_stores(known.get(table.store), table.store):
            first = locations.setdefault((part, table.name or name), name)
            if first != name:
                faults.add(f"tables.{name}.name", f"table {first!r} already keeps its records under this name")
                break
    replaced = {(table.store, table.name or name): name for name, table in tables.items() if table.generations}
    for (part, stored), name in locations.items():
        match = re.fullmatch(f"(.+){GENERATION_IN_STORE}[0-9]+", stored)
        if match is not None and (part, match[1]) in replaced:
            base = replaced[part, match[1]]
            faults.add(f"tables.{name}.name", f"is the name of a generation of table {base!r}, which has generations")


def check_specs(
    tables: Mapping[str, TableSettings],
    options: Mapping[str, BaseModel],
    known: Mapping[str, StoreSettings | None],
    faults: FaultCollector,
) -> None:
    """Check that each table can exist in its store, or in each of its partitions, as far as settings show that."""
    checked = {name: _table_checks(store) for name, store in known.items() if store is not None}
    for name, table in tables.items():
        spec = table.spec(name, options.get(name))
        parts = partition_stores(known.get(table.store), table.store)
        found = {error.detail for part in parts if (checks := checked.get(part)) for error in checks(spec)}
        for detail in sorted(found):
            faults.add(f"tables.{name}", detail)


def _table_checks(store: StoreSettings) -> Callable[[TableSpec], Iterable[TableError]] | None:
    kind = stores.backend_type(store.kind)
    return partial(kind.table_faults, store.options) if isinstance(kind, ChecksTables) else None


def check_directories(known: Mapping[str, StoreSettings | None], faults: FaultCollector) -> None:
    """Check that no two stores share a directory, that none is within another, and that none is a file."""
    places = {
        name: Path(store.options.directory)
        for name, store in known.items()
        if store is not None and isinstance(store.options, HasDirectory)
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


def check_partitions(known: Mapping[str, Any], faults: FaultCollector) -> None:
    """Check that each partition of a partitioned store is another store, and is not partitioned itself."""
    for name, entry in known.items():
        parts: object = entry.get("partitions") if entry.get("kind") == "partitioned" else None
        if not isinstance(parts, list):
            continue
        for index, part in enumerate(parts):
            if isinstance(part, str) and (fault := _partition_fault(part, parts[:index], known)):
                faults.add(f"stores.{name}.partitions.{index}", fault)


def check_shared_stores(tables: Mapping[str, TableSettings], known: Mapping[str, Any], faults: FaultCollector) -> None:
    """Check that the stores for shared rate limits and cache invalidation have the kind redis."""
    for name, table in tables.items():
        named = {"limiter": table.limiter, "cache.channel": table.cache.channel if table.cache else None}
        for member, store in named.items():
            entry = known.get(store) if store is not None else {"kind": "redis"}
            if not isinstance(entry, dict) or entry.get("kind") != "redis":
                faults.add(f"tables.{name}.{member}", f"must name a store of kind redis; {store!r} is not one")


def _partition_fault(part: str, before: list[object], known: Mapping[str, Any]) -> str | None:
    """Return the fault of a partition that comes after the partitions in `before`, or None."""
    if part not in known:
        return f"there is no store {part!r}"
    if part in before:
        return f"{part!r} is already partition {before.index(part)}"
    if known[part].get("kind") == "partitioned":
        return f"{part!r} is itself partitioned"
    return None
