"""The operations on one table as calls: the request of each verb, and its result from the response."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeAlias, TypeVar

from tableside_client import json_batch
from tableside_client.calls import Call, CallLimits, CallSettings
from tableside_client.errors import RecordNotFound, TablesideError, error
from tableside_client.http1 import Reply, Request
from tableside_client.json_batch import Document, Operation, own_tokens, single_write
from tableside_client.paths import Key, as_key, given, joined, names, record_path, table_path
from tableside_client.results import Outcome, Record, Written, conversions, etag_of

RECORDS_PER_PAGE = 1_000

V = TypeVar("V")

Update: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A merge patch, an operator document, or a list of them."""


def list_tables(settings: CallSettings) -> Call[list[dict[str, Any]]]:
    """Return the descriptions of all tables that the caller may see."""
    response = yield from CallLimits(settings).send_with_retries(Request("GET", "/v1/tables"))
    return list(response.json()["tables"])


def scan_params(
    prefix: str | None, partition: Key | None, split: str | None, fields: Sequence[str] | None, limit: int | None
) -> dict[str, Any]:
    """Return the parameters of a scan's requests. Raises `ValueError` for a limit below 1."""
    if limit is not None and limit < 1:
        raise ValueError("limit must be at least 1")
    page = RECORDS_PER_PAGE if limit is None else min(limit, RECORDS_PER_PAGE)
    return given(prefix=prefix, partition=partition, split=split, fields=joined(fields), limit=page)


def delete_params(prefix: str | None, partition: Key | None, *, everything: bool) -> dict[str, Any]:
    """Return the parameters of requests that delete many records. Raises `ValueError` unless there is exactly one."""
    params = given(prefix=prefix, partition=partition, all="true" if everything else None)
    if len(params) != 1 or prefix == "":
        raise ValueError("delete_all needs exactly one of prefix, which must not be empty, partition and everything")
    return params


def require_pairs(pairs: Any, order: str | None) -> None:
    """Raise `TypeError` for a frame, or for the order of one, without key columns."""
    if order is not None or hasattr(pairs, "columns"):
        raise TypeError("load of a frame needs key=, the names of its key columns")


class TableCalls(Generic[V]):
    """The calls of one table. Each method returns a generator that a client runs."""

    def __init__(self, name: str, settings: CallSettings, kind: type[V]) -> None:
        self.name, self.settings, self.kind = name, settings, kind
        self._to_value, self._to_object = conversions(kind)
        self._supports_tokens = True  # until the service reports otherwise
        self._tokens = own_tokens()

    def generation(self, number: int) -> "TableCalls[V]":
        """Return the calls of a generation of this table."""
        return TableCalls(f"{self.name}@{number}", self.settings, self.kind)

    def describe(self) -> Call[dict[str, Any]]:
        """Return the description of the table."""
        response = yield from self._send(Request("GET", table_path(self.name), self.name))
        return dict(response.json())

    def splits(self, count: int) -> Call[list[str]]:
        """Return 1 to `count` disjoint parts of the table."""
        response = yield from self._send(Request("GET", table_path(self.name, "splits"), self.name, {"count": count}))
        return [str(split) for split in response.json()["splits"]]

    def get(self, key: Key, fields: Sequence[str] | None) -> Call[V | None]:
        """Return a record's value, None if there is no record."""
        try:
            return (yield from self.record(key, fields)).value
        except RecordNotFound:
            return None

    def record(self, key: Key, fields: Sequence[str] | None) -> Call[Record[V]]:
        """Return a record."""
        path = record_path(self.name, key)
        if path is None:
            fields = None if fields is None else names(fields)
            [result] = yield from self._send_batch([given(op="get", key=key, fields=fields)])
            if (failure := json_batch.error_of(self.name, result)) is not None:
                raise failure
            return self._record({**result, "key": key})
        request = Request("GET", path, self.name, given(fields=joined(fields)))
        response = yield from self._send(request)
        expires_at = response.headers.get("tableside-expires-at")
        return Record(as_key(key), self._decode(key, response.json()), etag_of(response), expires_at)

    def write_members(self, op: str, key: Key, **members: Any) -> Document:
        """Return a write as an operation of a batch: with values as JSON objects, without options that are None."""
        encoded: Document = {"value": self._to_object(members["value"])} if op == "put" else {}
        if members.get("default") is not None:
            encoded["default"] = self._to_object(members["default"])
        return given(op=op, key=as_key(key), **members | encoded)

    def get_each(self, keys: Sequence[Any], fields: Sequence[str] | None = None) -> Call[list[V | TablesideError]]:
        """Return the value or the error of each key."""
        results = yield from self._send_batch([given(op="get", key=key, fields=fields) for key in keys])
        return [
            self._decode(key, result["value"]) if failure is None else failure
            for key, result in zip(keys, results, strict=True)
            for failure in [json_batch.error_of(self.name, result)]
        ]

    def get_many(self, keys: Iterable[Any], fields: Sequence[str] | None) -> Call[dict[Any, V]]:
        """Return the values of those keys that have a record."""
        found: dict[Any, V] = {}
        if isinstance(keys, str | bytes):
            raise TypeError(f"keys must be an iterable of keys, such as [{keys!r}]")
        fields = None if fields is None else names(fields)
        for chunk in json_batch.chunks(dict.fromkeys(map(as_key, keys))):
            values = yield from self.get_each(chunk, fields)
            for key, value in zip(chunk, values, strict=True):
                if not isinstance(value, TablesideError):
                    found[key] = value
                elif not isinstance(value, RecordNotFound):
                    raise value
        return found

    def batch(self, operations: Iterable[Mapping[str, Any]]) -> Call[list[Outcome[V]]]:
        """Send operations, and return their outcomes in order."""
        outcomes: list[Outcome[V]] = []
        values = ("value", "default")  # as JSON objects
        encoded = (
            {**operation, **{name: self._to_object(operation[name]) for name in values if operation.get(name)}}
            for operation in operations
        )
        for chunk in json_batch.chunks(encoded):
            results = yield from self._send_batch(chunk, is_first=not outcomes)
            pairs = zip(chunk, results, strict=True)
            outcomes += [self._outcome(operation.get("key"), result) for operation, result in pairs]
        return outcomes

    def load(self, pairs: Sequence[tuple[Any, Any]], *, is_first: bool) -> Call[list[tuple[Any, TablesideError]]]:
        """Store pairs, and return the failed keys with their errors. Raises if the first request is rejected."""
        puts: dict[int, Document] = {}
        failures: dict[int, TablesideError] = {}
        for position, (key, value) in enumerate(pairs):
            try:
                puts[position] = {"op": "put", "key": as_key(key), "value": self._to_object(value)}
            except (TypeError, ValueError) as cause:
                failures[position] = error(self.name, "invalid_operation", 422, str(cause))
        results = (yield from self._send_batch(puts.values(), is_first=is_first)) if puts else []
        for position, result in zip(puts, results, strict=True):
            if (failure := json_batch.error_of(self.name, result)) is not None:
                failures[position] = failure
        return [(pairs[position][0], failures[position]) for position in sorted(failures)]

    def page(self, params: Mapping[str, Any], cursor: str | None) -> Call[tuple[list[Record[V]], str | None]]:
        """Return one page of a scan and the cursor of the next page, None after the last one."""
        path = table_path(self.name, "records")
        response = yield from self._send(Request("GET", path, self.name, params={**params, **given(cursor=cursor)}))
        document = response.json()
        return [self._record(record) for record in document["records"]], document["cursor"]

    def delete_all(self, params: Mapping[str, Any], progress: Callable[[int], None] | None) -> Call[int]:
        """Delete records in pages, and return their number. `progress` gets the number so far between two pages."""
        path, total = table_path(self.name, "records"), 0
        while True:
            document = (yield from self._send(Request("DELETE", path, self.name, params))).json()
            total += int(document["deleted"])
            if document["cursor"] is None:
                return total
            if progress is not None:
                progress(total)
            params = {**params, "cursor": document["cursor"]}

    def _send(self, request: Request) -> Call[Reply]:
        return CallLimits(self.settings).send_with_retries(request)

    def _send_batch(self, operations: Iterable[Mapping[str, Any]], *, is_first: bool = True) -> Call[list[Document]]:
        """Send operations. Their tokens have a separate writer, so other writes may run concurrently."""
        tokens = own_tokens() if self._supports_tokens else None
        prepared = [Operation.create(operation, tokens) for operation in operations]
        return (yield from json_batch.send(CallLimits(self.settings), self.name, prepared, is_first=is_first))

    def write(self, members: Document) -> Call[Written]:
        """Send one write. Unless it is idempotent, it gets a token, and the writes of its record must take turns."""
        operation = Operation.create(members, self._tokens if self._supports_tokens else None)
        limits = CallLimits(self.settings)
        try:
            written = yield from self._send_write(limits, operation)
        except TablesideError as failure:
            if not operation.own_token or failure.code != "unsupported":
                raise
            written = yield from self._send_write(limits, operation.without_own_token())
            self._supports_tokens = False
        return replace(written, replayed=written.replayed and not operation.own_token)

    def _send_write(self, limits: CallLimits, operation: Operation) -> Call[Written]:
        request = single_write(self.name, operation)
        if request is not None:
            return Written.from_response((yield from limits.send_with_retries(request)))
        [result] = yield from json_batch.send(limits, self.name, [operation])
        if (failure := json_batch.error_of(self.name, result)) is not None:
            raise failure
        return Written.from_result(result)

    def _outcome(self, key: Any, result: Document) -> Outcome[V]:
        value = result.get("value")
        return Outcome(
            status=int(result["status"]),
            value=None if value is None else self._decode(key, value),
            etag=result.get("etag"),
            expires_at=result.get("expires_at"),
            replayed=bool(result.get("replayed")),
            error=json_batch.error_of(self.name, result),
            superseded=bool(result.get("superseded")),
        )

    def _decode(self, key: Any, document: dict[str, Any]) -> V:
        try:
            return self._to_value(document)
        except Exception as failure:
            failure.add_note(f"table {self.name}: the record with the key {key!r}")
            raise

    def _record(self, document: Mapping[str, Any]) -> Record[V]:
        value = self._decode(document["key"], document["value"])
        facts = (document.get(name) for name in ("etag", "expires_at", "partition"))
        return Record(as_key(document["key"]), value, *facts)
