"""`TableError`, and its construction from problem documents."""

from collections.abc import Mapping
from typing import Any

UNREACHABLE = "service_unreachable"
"""The code if there is no response: the connection was refused, was interrupted, or timed out."""

TLS_REFUSED = "tls_refused"
"""The code if one side of the TLS handshake rejects the other's certificate."""

_RETRIABLE = {429: "throttled", 502: "bad_gateway", 503: "overloaded", 504: "deadline_exceeded"}


class TableError(Exception):
    """A failed request or operation.

    Attributes:
        table: The name of the table, or None.
        code: The service's problem code, such as `record_not_found`; `service_unreachable` or `tls_refused` if there
            was no response.
        status: The HTTP status; 0 if there was no response.
        detail: The cause, in words.
        retriable: True if a retry may succeed.
        applied: `"no"` if a write certainly changed nothing, `"unknown"` if it may have been applied.
        retry_after_s: The time to wait before a retry, in seconds, if the service sent one.
    """

    def __init__(
        self,
        table: str | None,
        code: str,
        status: int,
        detail: str,
        *,
        retriable: bool = False,
        applied: str = "no",
        retry_after_s: float | None = None,
    ) -> None:
        self.table = table
        self.code = code
        self.status = status
        self.detail = detail
        self.retriable = retriable
        self.applied = applied
        self.retry_after_s = retry_after_s
        where = f"table {table}: " if table else ""
        super().__init__(f"{where}{code} ({status}): {detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            self.table, self.code, self.status, self.detail, self.retriable, self.applied, self.retry_after_s,
        )  # fmt: skip


def _rebuild(
    table: str | None,
    code: str,
    status: int,
    detail: str,
    retriable: bool,
    applied: str,
    retry_after_s: float | None,
) -> TableError:
    return TableError(table, code, status, detail, retriable=retriable, applied=applied, retry_after_s=retry_after_s)


def from_problem(
    table: str | None, status: int, problem: Mapping[str, Any] | None, retry_after: str | None
) -> TableError:
    """Build the error of a problem document. Without a document (a proxy's response), use the status alone."""
    if problem is None or "code" not in problem:
        return _from_status(table, status, _seconds(retry_after))
    seconds = problem.get("retry_after_s")
    return TableError(
        table,
        str(problem["code"]),
        status,
        str(problem.get("detail") or problem.get("title") or ""),
        retriable=bool(problem.get("retriable", False)),
        applied=str(problem.get("applied", "unknown")),
        retry_after_s=float(seconds) if isinstance(seconds, int | float) else _seconds(retry_after),
    )


def _from_status(table: str | None, status: int, retry_after_s: float | None) -> TableError:
    return TableError(
        table,
        "too_large" if status == 413 else _RETRIABLE.get(status, "unexpected_answer"),
        status,
        f"a response with status {status} that is not from the service",
        retriable=status in _RETRIABLE,
        applied="no" if 300 <= status < 400 or status in (401, 403, 404, 405, 413, 415, 429) else "unknown",
        retry_after_s=retry_after_s,
    )


def _seconds(retry_after: str | None) -> float | None:
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:  # An HTTP date: the service never sends one, and the clock of a proxy may differ.
        return None
