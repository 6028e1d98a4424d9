"""Errors as sentences for the pages."""

import msgspec

from ...core import TableError

_SENTENCES = {
    "record_not_found": "There is no record with this key.",
    "table_not_found": "There is no such table.",
    "malformed_request": "This cannot be read.",
    "invalid_operation": "This is not allowed for a record of this table.",
    "too_large": "This is too large.",
    "precondition_failed": "The record is not what it was when you looked it up.",
    "contended": "Other writers kept changing the record.",
    "throttled": "A rate limit is reached.",
    "overloaded": "The service has too much to do.",
    "store_unavailable": "The store cannot be reached.",
    "deadline_exceeded": "The store did not answer in time.",
    "record_unreadable": "The store has data under this key that is not a record.",
    "unsupported": "The store cannot do this for this table.",
    "unauthenticated": "The request is not authenticated.",
    "forbidden": "You do not have permission for this.",
    "internal": "The service has an internal error.",
}


class ErrorMessage(msgspec.Struct, frozen=True):
    """An error as a page shows it: a sentence, the error's detail and code, and advice on how to continue."""

    sentence: str
    detail: str
    code: str
    advice: str = ""


def describe_error(error: TableError, *, write: bool = False) -> ErrorMessage:
    """Return the message for an error. For a write, the advice states whether it may have been applied."""
    advice = []
    if write:
        advice.append("Nothing was changed." if error.applied == "no" else "It may have been applied: look again.")
    if error.retriable:
        advice.append("Trying again may help.")
    return ErrorMessage(_SENTENCES.get(error.code, "This did not succeed."), error.detail, error.code, " ".join(advice))
