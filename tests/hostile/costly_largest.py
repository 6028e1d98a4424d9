"""Requests for records of nearly the maximum size, for one table."""

from collections.abc import Iterator
from functools import partial

from hostile.bounds import Bounds
from hostile.costly import JSON, LARGEST, RETURNED, Input
from hostile.costs import Sent

KEYS = tuple(f"largest-{number}" for number in range(LARGEST))


def of_largest(bounds: Bounds) -> Iterator[Input]:
    """Return every input."""
    record = f"/v1/tables/{bounds.table}/records/{KEYS[0]}"
    update = b'{"update":{"$inc":{"n":1}}}'
    yield Input("GET largest", partial(Sent, "GET", record, b"", JSON), KEYS[:1])
    yield Input("PATCH largest", partial(Sent, "PATCH", record, update, JSON), KEYS[:1])
    yield Input("PATCH largest, returned", partial(Sent, "PATCH", record, update, RETURNED), KEYS[:1])
    for name, operation in {
        "get": b'{"op":"get","key":"%b"}',
        "update": b'{"op":"update","key":"%b","update":{"$inc":{"n":1}}}',
        "update, returned": b'{"op":"update","key":"%b","update":{"$inc":{"n":1}},"return":true}',
    }.items():
        body = b'{"operations":[%b]}' % b",".join(operation % key.encode() for key in KEYS)
        batch = partial(Sent, "POST", f"/v1/tables/{bounds.table}/batch", body, JSON)
        yield Input(f"batch {name}, largest", batch, KEYS)
