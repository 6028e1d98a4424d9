"""The client of the service: blocking, thread-safe, one connection pool. The only module that knows httpx."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from tableside_client import batch_retry, wire
from tableside_client.credential import Credential, HeldToken
from tableside_client.errors import TLS_REFUSED, UNREACHABLE, TableError, from_problem
from tableside_client.retries import DEFAULT_RETRIES, Budget, Retries
from tableside_client.tls import FreshContext, Tls, doubt, refusal
from tableside_client.tracing import trace_headers
from tableside_client.wire import Key

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
Result = TypeVar("Result")

_IDLE_MAX_S = 4.0  # shorter than servers keep an idle connection, so that none is found closed when needed


@dataclass(frozen=True, slots=True)
class Record:
    """A value with its etag, and its expiry (RFC 3339) where it has one."""

    value: dict[str, Any]
    etag: str | None
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write. `value` only where it was asked for; `created` if the record was absent."""

    etag: str | None
    created: bool
    replayed: bool
    value: dict[str, Any] | None = None


class TableClient:
    """Tables of one service, over one pool of connections. Share one among threads; close it at the end.

    Every method asks again, within `retries`, what failed in a way that may pass and may safely be repeated,
    and raises `TableError` for what remains. A service that cannot be reached is `service_unreachable`, with
    `applied` `"no"` if the request never left and `"unknown"` otherwise. `timeout_s` bounds one attempt.
    One that TLS does not let this client talk to is `tls_refused`, at once.

    The token is `token`, or what is in `token_file`, or in `TABLESIDE_TOKEN`. `ca_file`, `certificate_file` and
    `key_file` are as in `Tls`. Files are read again as they change. `credential` and `tls` say the same as values.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        credential: Credential | None = None,
        tls: Tls | None = None,
        timeout_s: float = 30.0,
        connections_max: int = 64,
        retries: Retries = DEFAULT_RETRIES,
        budget: Callable[[Retries], Budget] = Budget,
    ) -> None:
        self._retries = retries
        self._budget = budget
        self._retried = 0
        self._counting = threading.Lock()
        given = tls or Tls(ca_file, certificate_file, key_file)
        given.refuse_plain(url)
        self._tls = given.here() if url.startswith("https://") else None
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            verify=True if self._tls is None else FreshContext(self._tls, httpx.create_ssl_context),
            auth=_Bearer(credential or Credential(token, token_file)),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0), pool=None),
            limits=httpx.Limits(
                max_connections=connections_max,
                max_keepalive_connections=connections_max,
                keepalive_expiry=_IDLE_MAX_S,
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Requests under way fail."""
        self._http.close()

    @property
    def retried(self) -> int:
        """How many operations (or single requests) were asked again since the client was opened."""
        return self._retried

    def tables(self) -> list[dict[str, Any]]:
        """Every table that may be seen, described."""
        document = self._json("GET", "/v1/tables")
        tables: list[dict[str, Any]] = document["tables"] if isinstance(document, dict) else document
        return tables

    def describe(self, table: str) -> dict[str, Any]:
        """The table's key fields, capabilities, limits and policies."""
        description: dict[str, Any] = self._json("GET", _path(table), table=table)
        return description

    def splits(self, table: str, count: int) -> list[str]:
        """One to `count` disjoint parts that together cover the table, for parallel scans."""
        document = self._json("GET", _path(table, "splits"), table=table, params={"count": count})
        return [str(split) for split in document["splits"]]

    def get(self, table: str, key: Key, *, fields: Sequence[str] | None = None) -> Record:
        """The record; `record_not_found` where there is none. `fields` limits it to those members."""
        path = wire.key_path(key)
        if path is None:
            return self._get_by_batch(table, key, fields)
        response = self._request(
            "GET", _path(table, "records", path), table=table, params=_query(fields=_joined(fields))
        )
        return Record(response.json(), _etag(response), response.headers.get("tableside-expires-at"))

    def put(
        self,
        table: str,
        key: Key,
        value: Mapping[str, Any],
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        ttl_s: float | None = None,
        token: tuple[str, int] | None = None,
        return_: bool = False,
    ) -> Written:
        """Store the value, replacing what was there. `token` is a writer and its sequence."""
        members = _members(value=value, if_match=if_match, if_absent=if_absent or None, ttl_s=ttl_s)
        path = _single_path(table, key, token)
        if path is None:
            return self._write_by_batch(table, "put", key, members, token, return_)
        headers = _headers(if_match, token, return_) | ({"If-None-Match": "*"} if if_absent else {})
        repeatable = token is not None or not (if_match or if_absent)
        return _written(
            self._request(
                "PUT", path, table=table, json=value, headers=headers, params=_query(ttl_s=ttl_s), repeatable=repeatable
            )
        )

    def update(
        self,
        table: str,
        key: Key,
        update: Any,
        *,
        default: Mapping[str, Any] | None = None,
        if_match: str | None = None,
        ttl_s: float | None = None,
        token: tuple[str, int] | None = None,
        return_: bool = False,
    ) -> Written:
        """Apply a merge patch, an operator document or a list of them, to `default` where there is no record."""
        members = _members(update=update, default=default, ttl_s=ttl_s)
        path = _single_path(table, key, token)
        if path is None:
            return self._write_by_batch(table, "update", key, members | _members(if_match=if_match), token, return_)
        headers = _headers(if_match, token, return_)
        return _written(
            self._request("PATCH", path, table=table, json=members, headers=headers, repeatable=token is not None)
        )

    def delete(
        self, table: str, key: Key, *, if_match: str | None = None, token: tuple[str, int] | None = None
    ) -> Written:
        """Remove the record; that there was none is success, unless `if_match` says otherwise."""
        path = _single_path(table, key, token)
        if path is None:
            return self._write_by_batch(table, "delete", key, _members(if_match=if_match), token, return_=False)
        headers = _headers(if_match, token, return_=False)
        repeatable = token is not None or if_match is None
        return _written(self._request("DELETE", path, table=table, headers=headers, repeatable=repeatable))

    def batch(
        self,
        table: str,
        operations: pa.Table | pa.RecordBatch,
        *,
        op: str | None = None,
        writer: str | None = None,
        return_: bool = False,
        fields: Sequence[str] | None = None,
        at_least_once: bool = False,
    ) -> pa.Table:
        """Send operations together: columns as the service's Arrow batch, one row each; the answer likewise.

        The answer has the columns of `answers.ANSWER` and `retries`. Failed operations are rows, not
        exceptions, also where the service was never reached; `TableError` is raised only where the request as a
        whole was refused for good. Only positions that may yet succeed are asked again: those that were surely
        not applied, and those that are harmless to repeat (reads, tokens, puts and deletes without a
        precondition; everything with `at_least_once`). What is too large for one request is sent in halves.
        """
        rows = operations if isinstance(operations, pa.Table) else pa.Table.from_batches([operations])
        params = _query(op=op, writer=writer, fields=_joined(fields)) | ({"return": "true"} if return_ else {})

        def settled(part: pa.Table) -> pa.Table:
            try:
                return batch_retry.settle(
                    part,
                    lambda pending: self._exchange(table, pending, params),
                    wire.repeatable(part, op, writer is not None, at_least_once),
                    self._budget(self._retries),
                )
            except TableError as error:
                if error.status != 413 or len(part) < 2:
                    raise
                half = len(part) // 2
                return pa.concat_tables([settled(part.slice(0, half)), settled(part.slice(half))])

        answer = settled(rows)
        self._count(int(pc.sum(answer["retries"]).as_py() or 0))
        return answer

    def scan(
        self,
        table: str,
        *,
        split: str | None = None,
        prefix: str | None = None,
        partition: str | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.Table]:
        """The records, in pages of `key`, `value` (JSON text) and `etag`. `limit` bounds one page.

        A record present throughout comes at least once; pages may be short, or empty.
        """
        query = _query(split=split, prefix=prefix, partition=partition, fields=_joined(fields), limit=limit)
        cursor: str | None = None
        while True:
            params = query | _query(cursor=cursor)
            response = self._request(
                "GET", _path(table, "records"), table=table, params=params, headers={"Accept": wire.ARROW}
            )
            page = wire.read_stream(response.content)
            yield page
            cursor = _cursor(page, response)
            if cursor is None:
                return

    def _exchange(self, table: str, operations: pa.Table, params: Mapping[str, Any]) -> batch_retry.Answer:
        try:
            response = self._send(
                "POST",
                _path(table, "batch"),
                table=table,
                params=params,
                content=wire.stream_bytes(operations),
                headers={"Content-Type": wire.ARROW, "Accept": wire.ARROW},
            )
        except TableError as error:
            if not error.retriable:
                raise
            return batch_retry.failed(error, len(operations))
        return batch_retry.Answer(wire.read_answer(response.content))

    def _get_by_batch(self, table: str, key: Key, fields: Sequence[str] | None) -> Record:
        result = self._single(table, {"op": "get", "key": key} | _members(fields=fields), repeatable=True)
        return Record(result["value"], result.get("etag"), result.get("expires_at"))

    def _write_by_batch(
        self,
        table: str,
        op: str,
        key: Key,
        members: Mapping[str, Any],
        token: tuple[str, int] | None,
        return_: bool,
    ) -> Written:
        operation = {"op": op, "key": key, **members} | ({"return": True} if return_ else {})
        if token is not None:
            operation["token"] = {"writer": token[0], "sequence": token[1]}
        conditional = "if_match" in members or "if_absent" in members
        repeatable = token is not None or (op != "update" and not conditional)
        result = self._single(table, operation, repeatable)
        return Written(result.get("etag"), result["status"] == 201, bool(result.get("replayed")), result.get("value"))

    def _single(self, table: str, operation: Mapping[str, Any], repeatable: bool) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            body = {"operations": [operation]}
            response = self._send("POST", _path(table, "batch"), table=table, json=body)
            result: dict[str, Any] = response.json()["results"][0]
            if "error" in result:
                raise from_problem(table, int(result["status"]), result["error"], None)
            return result

        return self._persist(ask, repeatable)

    def _json(self, method: str, path: str, *, table: str | None = None, params: Mapping[str, Any] = {}) -> Any:
        return self._request(method, path, table=table, params=params).json()

    def _request(self, method: str, path: str, *, repeatable: bool = True, **request: Any) -> httpx.Response:
        return self._persist(lambda: self._send(method, path, **request), repeatable)

    def _persist(self, ask: Callable[[], Result], repeatable: bool) -> Result:
        budget = self._budget(self._retries)
        while True:
            try:
                return ask()
            except TableError as error:
                safe = repeatable or error.applied == "no"
                if not (error.retriable and safe and budget.wait(error.retry_after_s)):
                    raise
                self._count(1)

    def _send(self, method: str, path: str, *, table: str | None = None, **request: Any) -> httpx.Response:
        if "json" in request:
            content = wire.json_bytes(request.pop("json"))
            request["content"] = content
            request["headers"] = {"Content-Type": wire.JSON} | dict(request.get("headers", {}))
        request["headers"] = trace_headers() | dict(request.get("headers", {}))
        try:
            response = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise _unreachable(table, error, self._tls) from error
        if not response.is_success:  # A redirect is a proxy's, which wants a login or TLS.
            raise from_problem(table, response.status_code, _problem(response), response.headers.get("retry-after"))
        return response

    def _count(self, retries: int) -> None:
        with self._counting:
            self._retried += retries


class _Bearer(httpx.Auth):
    """Puts the token on each request, and reads it anew, once, when it is refused."""

    def __init__(self, credential: Credential) -> None:
        self._token = HeldToken(credential)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Sign; on a 401 sign again if the token has changed meanwhile."""
        sent = self._sign(request)
        response = yield request
        if response.status_code == 401 and self._token.differs_from(sent):
            self._sign(request)
            yield request

    def _sign(self, request: httpx.Request) -> str | None:
        token = self._token.current()
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return token


def _unreachable(table: str | None, error: httpx.TransportError, tls: Tls | None) -> TableError:
    refused = None if tls is None else refusal(error, tls)
    if refused is not None:
        return TableError(table, TLS_REFUSED, 0, refused)
    cut_off = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
    return TableError(
        table,
        UNREACHABLE,
        0,
        f"{type(error).__name__}: {error}" + (f" ({doubt(tls)})" if tls is not None and cut_off else ""),
        retriable=not isinstance(error, httpx.UnsupportedProtocol),
        applied="no" if isinstance(error, _NOT_SENT) else "unknown",
    )


def _problem(response: httpx.Response) -> Mapping[str, Any] | None:
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _path(table: str, *rest: str) -> str:
    return "/".join(["/v1/tables", wire.key_path(table) or table, *rest])


def _single_path(table: str, key: Key, token: tuple[str, int] | None) -> str | None:
    """The record's path, or None where path or headers cannot carry the key or the token."""
    path = wire.key_path(key)
    portable = token is None or (token[0].isascii() and token[0].isprintable())
    return _path(table, "records", path) if path is not None and portable else None


def _headers(if_match: str | None, token: tuple[str, int] | None, return_: bool) -> dict[str, str]:
    quoted = None if if_match is None else "*" if if_match == "*" else f'"{if_match}"'
    return wire.without_nothing(
        {
            "If-Match": quoted,
            "Tableside-Token": None if token is None else f"{token[0]}/{token[1]}",
            "Prefer": "return=representation" if return_ else None,
        }
    )


def _written(response: httpx.Response) -> Written:
    return Written(
        _etag(response),
        response.status_code == 201,
        response.headers.get("tableside-replayed") == "true",
        response.json() if response.content else None,
    )


def _etag(response: httpx.Response) -> str | None:
    etag: str | None = response.headers.get("etag")
    return None if etag is None else etag.removeprefix("W/").strip('"')


def _cursor(page: pa.Table, response: httpx.Response) -> str | None:
    metadata: Mapping[bytes, bytes] = page.schema.metadata or {}
    return response.headers.get("tableside-cursor") or metadata.get(b"cursor", b"").decode() or None


def _query(**parameters: Any) -> dict[str, Any]:
    return wire.without_nothing(parameters)


def _members(**members: Any) -> dict[str, Any]:
    return wire.without_nothing(members)


def _joined(fields: Sequence[str] | None) -> str | None:
    return None if fields is None else ",".join(fields)
