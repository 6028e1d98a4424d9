"""The exceptions of the clients, from problem documents, transport errors and outcomes."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import httpx

from tableside_client.address import Address, EnvironmentProxy
from tableside_client.http1 import Reply
from tableside_client.tls import disconnect_hint, rejection_reason

UNREACHABLE = "service_unreachable"
"""The code if there is no response: the connection was refused, was interrupted, or timed out."""

TLS_REFUSED = "tls_refused"
"""The code if one side of the TLS handshake rejects the other's certificate."""

PROXY_FAILED = "proxy_failed"
"""The code if the proxy that the environment names does not connect to the service."""

_RETRIABLE = {429: "throttled", 502: "bad_gateway", 503: "overloaded", 504: "deadline_exceeded"}


class TablesideError(Exception):
    """A failed request or operation, the base of all exceptions about the service's responses.

    Attributes:
        table: The name of the table, or None.
        code: The service's problem code, such as `record_not_found`. `service_unreachable`, `proxy_failed` or
            `tls_refused` if there was no response.
        status: The HTTP status, or 0 if there was no response.
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
        self.table, self.code, self.status, self.detail = table, code, status, detail
        self.retriable, self.applied, self.retry_after_s = retriable, applied, retry_after_s
        where = f"table {table}: " if table else ""
        response = f" ({status})" if status else ""
        super().__init__(f"{where}{code}{response}: {detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        create = partial(type(self), retriable=self.retriable, applied=self.applied, retry_after_s=self.retry_after_s)
        return create, (self.table, self.code, self.status, self.detail)


TableError = TablesideError


class RecordNotFound(TablesideError):
    """There is no record with this key (`record_not_found`)."""


class TableNotFound(TablesideError):
    """There is no table with this name (`table_not_found`)."""


class PreconditionFailed(TablesideError):
    """The record is not the version that `if_match` names, or exists although `if_absent` is set."""


class GenerationNotFound(TablesideError):
    """The table has no such generation, or it was removed (`generation_not_found`)."""


class GenerationSealed(TablesideError):
    """A write names a generation that does not load (`generation_sealed`), for example one that was activated."""


class AccessDenied(TablesideError):
    """The token is missing or invalid (`unauthenticated`), or lacks the permission for this operation (`forbidden`)."""


class InvalidOperation(TablesideError):
    """The operation can never succeed unchanged: an invalid key, value or update, or one that is too large."""


class Unavailable(TablesideError):
    """The service or the store cannot answer now: unreachable, overloaded, throttled, or past the deadline."""


class LoadError(TablesideError):
    """`Table.load` could not write some records. Code, status and `retriable` are those of the first.

    The load stops after a request whose failures are temporary, or whose generation is gone: later records are not
    sent.

    Attributes:
        failures: The key and the error of each record that was not written, in the order of the input.
        written: The number of records that were written.
    """

    def __init__(self, failures: Sequence[tuple[Any, TablesideError]], written: int) -> None:
        key, first = failures[0]
        stopped = "; the load stopped there" if ends_load(failures) else ""
        super().__init__(
            first.table,
            first.code,
            first.status,
            f"{written} records were written, {len(failures)} records were not written{stopped}; the first has the key "
            f"{key!r}: {first.detail}",
            retriable=first.retriable,
            applied=first.applied,
        )
        self.failures = list(failures)
        self.written = written

    def __reduce__(self) -> tuple[Any, ...]:
        return LoadError, (self.failures, self.written)


class FrameWriteError(LoadError):
    """`load` of a frame or `update_frame` could not write some rows. `code` is the most frequent one.

    The write stops after a request whose failures are temporary: later rows are not sent.

    Attributes:
        failures: The key and the error of each row that failed, in the order of the rows.
        written: The number of rows that were written.
        unsent: The number of rows that were not sent.
    """

    def __init__(
        self,
        failures: Sequence[tuple[Any, TablesideError]],
        written: int,
        unsent: int = 0,
        *,
        is_repeatable: bool = True,
    ) -> None:
        super().__init__(failures, written)
        self.unsent = unsent
        self._is_repeatable = is_repeatable
        counts = Counter(failure.code for _, failure in failures)
        [(self.code, _)] = counts.most_common(1)
        key, first = next((key, failure) for key, failure in failures if failure.code == self.code)
        self.status, self.detail = first.status, first.detail
        self.retriable, self.applied = first.retriable, first.applied
        message = f"table {self.table}: {counts_text(dict(counts.most_common()))}; the first has the key "
        message += f"{key_json(key)}: {first.detail}"
        if not is_repeatable:
            message += (
                f". Part of the write may have been applied: {written} rows were applied, {unsent} were not sent. To "
                'make running a write again harmless, give each run a different token, such as token="load/2026-11-20"'
            )
        self.args = (message,)

    def __reduce__(self) -> tuple[Any, ...]:
        create = partial(FrameWriteError, is_repeatable=self._is_repeatable)
        return create, (self.failures, self.written, self.unsent)


KEY_CHARACTERS_MAX = 200


def key_json(key: Any) -> str:
    """Return a key as JSON, cut if it is long."""
    text = json.dumps(key, ensure_ascii=False)
    return text if len(text) <= KEY_CHARACTERS_MAX else f"{text[:KEY_CHARACTERS_MAX]}…"


def counts_text(counts: Mapping[str, int]) -> str:
    """Return a text like "3 rows failed with too_large, 2 with throttled"."""
    (code, rows), *others = counts.items()
    noun = "row" if rows == 1 else "rows"
    return ", ".join([f"{rows} {noun} failed with {code}", *(f"{count} with {other}" for other, count in others)])


def ends_load(failures: Iterable[tuple[Any, TablesideError]]) -> bool:
    """Return whether later records would fail too: a failure has outlasted its retries, or the generation is gone."""
    gone = (GenerationNotFound, GenerationSealed)
    return any(failure.retriable or isinstance(failure, gone) for _, failure in failures)


_CLASSES: dict[str, type[TablesideError]] = {
    "record_not_found": RecordNotFound,
    "table_not_found": TableNotFound,
    "precondition_failed": PreconditionFailed,
    "generation_not_found": GenerationNotFound,
    "generation_sealed": GenerationSealed,
    **dict.fromkeys(("unauthenticated", "forbidden"), AccessDenied),
    **dict.fromkeys(("malformed_request", "invalid_operation", "too_large", "unsupported"), InvalidOperation),
    **dict.fromkeys(("contended", "throttled", "overloaded", "store_unavailable", "deadline_exceeded"), Unavailable),
    **dict.fromkeys(("bad_gateway", UNREACHABLE, PROXY_FAILED), Unavailable),
}


def error(table: str | None, code: str, status: int, detail: str, **attributes: Any) -> TablesideError:
    """Return the exception of a code. `attributes` are the keyword arguments of `TablesideError`."""
    return _CLASSES.get(code, TablesideError)(table, code, status, detail, **attributes)


def through(proxy: EnvironmentProxy | None) -> str:
    """Return the end of a message about a request that went through this proxy, empty if there is none."""
    return "" if proxy is None else f", through {proxy}"


def from_problem(
    table: str | None,
    status: int,
    problem: Mapping[str, Any] | None,
    retry_after: str | None,
    proxy: EnvironmentProxy | None = None,
) -> TablesideError:
    """Build the error of a problem document. Without a document (a proxy's response), use the status alone."""
    if problem is None or "code" not in problem:
        return error(
            table,
            "too_large" if status == 413 else _RETRIABLE.get(status, "unexpected_answer"),
            status,
            f"a response with status {status} that is not from the service{through(proxy)}",
            retriable=status in _RETRIABLE,
            applied="no" if 300 <= status < 400 or status in (401, 403, 404, 405, 407, 413, 415, 429) else "unknown",
            retry_after_s=_seconds(retry_after),
        )
    seconds = problem.get("retry_after_s")
    return error(
        table,
        str(problem["code"]),
        status,
        str(problem.get("detail") or problem.get("title") or ""),
        retriable=bool(problem.get("retriable", False)),
        applied=str(problem.get("applied", "unknown")),
        retry_after_s=float(seconds) if isinstance(seconds, int | float) else _seconds(retry_after),
    )


def _seconds(retry_after: str | None) -> float | None:
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:  # An HTTP date: the service never sends one, and the clock of a proxy may differ.
        return None


_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
_NOT_SENT = (*_NOT_CONNECTED, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def unreachable(
    table: str | None, cause: httpx.TransportError, address: Address, *, is_read: bool = False
) -> TablesideError:
    """Return the exception for a request without a response. `is_read` means that it changes nothing."""
    tls, proxy = address.tls, address.proxy
    rejection = None if tls is None else rejection_reason(cause, tls)
    if rejection is not None:
        return error(table, TLS_REFUSED, 0, rejection + through(proxy))
    disconnected = isinstance(cause, httpx.RemoteProtocolError | httpx.ReadError)
    hint = f" ({disconnect_hint(tls)})" if tls is not None and disconnected else ""
    by_proxy = proxy is not None and isinstance(cause, _NOT_CONNECTED)
    # A proxy that answers with 4xx refuses to connect, for example because it requires a password (407).
    is_refused = isinstance(cause, httpx.ProxyError) and str(cause).startswith("4")
    return error(
        table,
        PROXY_FAILED if by_proxy else UNREACHABLE,
        0,
        f"{address.origin}{through(proxy)}: {type(cause).__name__}: {cause}{hint}",
        retriable=not isinstance(cause, httpx.UnsupportedProtocol) and not is_refused,
        applied="no" if is_read or isinstance(cause, _NOT_SENT) else "unknown",
    )


def problem_of(response: Reply) -> Mapping[str, Any] | None:
    """Return the problem document of a response, None if it has none."""
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
