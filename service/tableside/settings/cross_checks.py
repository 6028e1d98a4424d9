"""Checks between members of a configuration that are valid by themselves."""

from collections.abc import Mapping
from typing import Any

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
    """Check that no two tables keep their records under the same name in the same store."""
    locations: dict[TableLocation, str] = {}
    for name, table in tables.items():
        for part in partition_stores(known.get(table.store), table.store):
            first = locations.setdefault((part, table.name or name), name)
            if first != name:
                faults.add(f"tables.{name}.name", f"table {first!r} already keeps its records under this name")
                break


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
    """Check that the stores for shared rate limits and cache invalidation are of kind redis."""
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
