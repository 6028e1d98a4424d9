"""The description of a table for clients, without secrets."""

import msgspec

from ...catalog import CatalogEntry
from ...core import JsonObject
from ...settings import LimitSettings

_POLICIES = {
    *("ttl_s", "consistency", "deadline_s", "read", "write"),
    *("cost", "limiter", "batch", "cache", "concurrency_max"),
}


def describe(entry: CatalogEntry, limits: LimitSettings, *, defaults: bool = True) -> JsonObject:
    """Return a table's description, with all its policies or, without `defaults`, only settings that differ from them.

    `capabilities` is empty until the table was opened for the first time.
    """
    spec, table = entry.spec, entry.table
    return {
        **({"partitions": spec.partitions} if spec.partitions else {}),
        "name": spec.name,
        "store": {"name": entry.store, "kind": entry.kind},
        "key": [{"name": field.name, "type": field.type} for field in spec.key.fields],
        "capabilities": {} if table is None else msgspec.to_builtins(table.capabilities),
        "limits": {
            "operations_max": limits.operations_max,
            "body_bytes_max": limits.body_bytes_max,
            "response_bytes_max": limits.response_bytes_max,
            "value_bytes_max": spec.value_bytes_max,
            "in_flight_max": limits.in_flight_max,
            "operations_in_flight_max": limits.operations_in_flight_max,
            "bytes_in_flight_max": limits.bytes_in_flight_max,
        },
        "policies": entry.settings.model_dump(include=_POLICIES, exclude_defaults=not defaults),
    }
