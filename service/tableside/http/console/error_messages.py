"""Errors as messages for the pages."""

import msgspec

from ...core import TableError

SUMMARIES = {
    "record_not_found": "Record not found.",
    "table_not_found": "Table not found.",
    "malformed_request": "The request cannot be parsed.",
    "invalid_operation": "Invalid key, value or operation.",
    "too_large": "A size limit was exceeded.",
    "precondition_failed": "The record was changed after it was loaded.",
    "contended": "Concurrent writes to the record caused a conflict.",
    "throttled": "A rate limit was exceeded.",
    "overloaded": "The service is overloaded.",
    "store_unavailable": "The store is unreachable.",
    "deadline_exceeded": "The deadline was exceeded.",
    "record_unreadable": "The store's entry under this key is not a valid record.",
    "unsupported": "The store does not support this operation.",
    "unauthenticated": "Authentication is required.",
    "forbidden": "Permission denied.",
    "internal": "An internal error occurred.",
}


class ErrorMessage(msgspec.Struct, frozen=True):
    """An error as a page shows it: a summary, the error's detail and code, and advice on how to continue."""

    summary: str
    detail: str
    code: str
    advice: str = ""


def describe_error(error: TableError, *, write: bool = False) -> ErrorMessage:
    """Return the message for an error. For a write, the advice states whether it may have been applied."""
    advice = []
    if write and error.applied == "no":
        advice.append("The record is unchanged.")
    elif write:
        advice.append("The write may have been applied: look up the record again.")
    if error.retriable:
        advice.append("A retry may succeed.")
    return ErrorMessage(SUMMARIES.get(error.code, "The request failed."), error.detail, error.code, " ".join(advice))
