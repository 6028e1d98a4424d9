"""What the client raises. Knows the service's problem documents, and nothing of HTTP or Spark."""

from collections.abc import Mapping
from typing import Any

UNREACHABLE = "service_unreachable"
"""The code of a request that brought no answer: refused, cut off, or timed out on the way."""

TLS_REFUSED = "tls_refused"
"""The code of a request for which there was no connection, since one side refuses the other's certificate."""

_RETRIABLE = {429: "throttled", 502: "bad_gateway", 503: "overloaded", 504: "deadline_exceeded"}


class TableError(Exception):
    """A request, or one operation, that failed.

    `retriable` says whether asking again may help, `applied` is `"no"` or `"unknown"`: whether a write may
    have happened. `status` is 0 where no answer came at all (`code` is then `service_unreachable` or `tls_refused`).
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
    """The error in a problem document; without one (a proxy answered), the status has to serve."""
    if problem is None or "code" not in problem:
        return _from_status(table, status, _seconds(retry_after))
    stated = problem.get("retry_after_s")
    return TableError(
        table,
        str(problem["code"]),
        status,
        str(problem.get("detail") or problem.get("title") or ""),
        retriable=bool(problem.get("retriable", False)),
        applied=str(problem.get("applied", "unknown")),
        retry_after_s=float(stated) if isinstance(stated, int | float) else _seconds(retry_after),
    )


def _from_status(table: str | None, status: int, retry_after_s: float | None) -> TableError:
    return TableError(
        table,
        "too_large" if status == 413 else _RETRIABLE.get(status, "unexpected_answer"),
        status,
        f"an answer with status {status} that is not the service's own",
        retriable=status in _RETRIABLE,
        applied="no" if 300 <= status < 400 or status in (401, 403, 404, 405, 413, 415, 429) else "unknown",
        retry_after_s=retry_after_s,
    )


def _seconds(retry_after: str | None) -> float | None:
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:  # a date: the service never sends one, and a proxy's clock is not ours
        return None
