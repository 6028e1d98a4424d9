"""What a caller is told of a table; never a secret."""

import msgspec

from ..catalog import Entry
from ..settings import LimitSettings
from ..transition import VALUE_BYTES_MAX
from ..values import JsonObject


def describe(entry: Entry, limits: LimitSettings) -> JsonObject:
    """Return a table's description."""
    spec = entry.table.spec
    return {
        "name": spec.name,
        "store": {"name": entry.store, "kind": entry.kind},
        "key": [{"name": field.name, "type": field.type} for field in spec.key.fields],
        "capabilities": msgspec.to_builtins(entry.table.capabilities),
        "limits": {
            "operations_max": limits.operations_max,
            "body_bytes_max": limits.body_bytes_max,
            "response_bytes_max": limits.response_bytes_max,
            "value_bytes_max": VALUE_BYTES_MAX,
        },
        "policies": {"ttl_s": spec.ttl_s, "deadline_s": entry.table.deadline_s},
    }
