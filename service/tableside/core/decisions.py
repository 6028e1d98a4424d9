"""Decides writes: short ones immediately, long ones in a thread, while other requests continue."""

from functools import partial

from .changes import changes_bytes
from .errors import RecordUnreadable
from .lane import run_in_thread
from .operations import Update, Write
from .store import TableSpec
from .transitions import Stored, Transition, transition

SHORT_BYTES_MAX = 2**16
"""The maximum size of a value, and of the text of an update, that is decided immediately: in up to 5 ms."""


async def decide(
    stored: Stored | RecordUnreadable | None, write: Write, spec: TableSpec, *, now_ms: int, etag: str
) -> Transition:
    """Return the `transition` of a record. The caller checks afterwards whether the record is still the same."""
    decided = partial(transition, stored, write, spec, now_ms=now_ms, etag=etag)
    return await run_in_thread(decided) if takes_long(stored, write) else decided()


def takes_long(stored: Stored | RecordUnreadable | None, write: Write) -> bool:
    """Return whether a write parses a large value or a large update."""
    if not isinstance(write, Update):
        return False
    value = stored.value if isinstance(stored, Stored) and stored.value is not None else write.default
    if value is not None and len(value) > SHORT_BYTES_MAX:
        return True
    return changes_bytes(write.changes) > SHORT_BYTES_MAX
