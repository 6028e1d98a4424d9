"""Outcomes as sentences."""

import msgspec

from ...core import TableError

_SAYINGS = {
    "record_not_found": "There is no record with this key.",
    "table_not_found": "There is no such table.",
    "malformed_request": "This cannot be read.",
    "invalid_operation": "This is not allowed for a record of this table.",
    "too_large": "This is too large.",
    "precondition_failed": "The record is not what it was when you looked it up.",
    "contended": "Others kept changing the record.",
    "throttled": "A rate limit is reached.",
    "overloaded": "The service has too much to do.",
    "store_unavailable": "The store cannot be reached.",
    "deadline_exceeded": "The store did not answer in time.",
    "record_unreadable": "What the store holds under this key is no record.",
    "unsupported": "The store cannot do this for this table.",
    "unauthenticated": "It is not known who asks.",
    "forbidden": "This is not allowed to you.",
    "internal": "Something is wrong in the service itself.",
}


class Trouble(msgspec.Struct, frozen=True):
    """What went wrong: in a sentence, in the service's own words, and as the code that callers get."""

    saying: str
    detail: str
    code: str
    advice: str = ""


def trouble(error: TableError, *, write: bool = False) -> Trouble:
    """Return what to say of an error; of a write, whether it may have happened."""
    advice = []
    if write:
        advice.append("Nothing was changed." if error.applied == "no" else "It may have been applied: look again.")
    if error.retriable:
        advice.append("Asking again may help.")
    return Trouble(_SAYINGS.get(error.code, "This did not succeed."), error.detail, error.code, " ".join(advice))
