"""What must hold between members of a configuration, each of which is right by itself."""

from collections.abc import Mapping
from typing import Any

from .faults import FaultCollector
from .settings import StoreSettings, partition_stores
from .tables import TableLocation, TableSettings


def check_defaults(
    auto_create: bool, default_store: str | None, known: Mapping[str, Any], faults: FaultCollector
) -> None:
    """See to it that a table that is made as it is written to has a store."""
    if default_store is not None and default_store not in known:
        faults.add("default_store", f"no store has the name {default_store!r}")
    if auto_create and default_store is None and len(known) > 1:
        faults.add("default_store", "auto_create needs it where there are several stores")


def check_locations(
    tables: Mapping[str, TableSettings], known: Mapping[str, StoreSettings | None], faults: FaultCollector
) -> None:
    """See to it that no two tables keep their records in one place."""
    locations: dict[TableLocation, str] = {}
    for name, table in tables.items():
        for part in partition_stores(known.get(table.store), table.store):
            first = locations.setdefault((part, table.name or name), name)
            if first != name:
                faults.add(f"tables.{name}.name", f"table {first!r} keeps its records there")
                break


def check_partitions(known: Mapping[str, Any], faults: FaultCollector) -> None:
    """See to it that what is made of other stores is made of different ones that keep records themselves."""
    for name, entry in known.items():
        parts: object = entry.get("partitions") if entry.get("kind") == "partitioned" else None
        if not isinstance(parts, list):
            continue
        for index, part in enumerate(parts):
            if isinstance(part, str) and (fault := _partition_fault(part, parts[:index], known)):
                faults.add(f"stores.{name}.partitions.{index}", fault)


def check_shared_stores(tables: Mapping[str, TableSettings], known: Mapping[str, Any], faults: FaultCollector) -> None:
    """See to it that what replicas share is on a store that can carry it."""
    for name, table in tables.items():
        named = {"limiter": table.limiter, "cache.channel": table.cache.channel if table.cache else None}
        for member, store in named.items():
            entry = known.get(store) if store is not None else {"kind": "redis"}
            if not isinstance(entry, dict) or entry.get("kind") != "redis":
                faults.add(f"tables.{name}.{member}", f"names a store of kind redis, which {store!r} is not")


def _partition_fault(part: str, before: list[object], known: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a partition of that name, after others."""
    if part not in known:
        return f"no store has the name {part!r}"
    if part in before:
        return f"{part!r} is partition {before.index(part)} already"
    if known[part].get("kind") == "partitioned":
        return f"{part!r} is partitioned itself"
    return None
