"""Decides writes: short ones immediately, long ones in the helper process, while other requests continue."""

from functools import partial

from msgspec.structs import replace

from .changes import changes_bytes, packed
from .errors import RecordUnreadable
from .operations import Update, Write
from .slices import run_apart
from .store import TableSpec
from .transitions import Stored, Transition, transition

SHORT_BYTES_MAX = 2**16
"""The maximum size of a value, and of the text of an update, that is decided immediately: in up to 5 ms."""


async def decide(
    stored: Stored | RecordUnreadable | None, write: Write, spec: TableSpec, *, now_ms: int, etag: str
) -> Transition:
    """Return the `transition` of a record. The caller checks afterwards whether the record is still the same."""
    if not (isinstance(write, Update) and takes_long(stored, write)):
        return transition(stored, write, spec, now_ms=now_ms, etag=etag)
    # As text, the changes are sent in one piece. The options are of the store, whose driver the helper does not load.
    packed_write, bare_spec = replace(write, changes=packed(write.changes)), replace(spec, options=None)
    return await run_apart(partial(transition, stored, packed_write, bare_spec, now_ms=now_ms, etag=etag))


def takes_long(stored: Stored | RecordUnreadable | None, write: Write) -> bool:
    """Return whether a write parses a large value or a large update."""
    if not isinstance(write, Update):
        return False
    value = stored.value if isinstance(stored, Stored) and stored.value is not None else write.default
    if value is not None and len(value) > SHORT_BYTES_MAX:
        return True
    return changes_bytes(write.changes) > SHORT_BYTES_MAX
