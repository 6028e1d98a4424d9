"""Operations in JSON: their tokens, single requests, and batches with retries by position."""

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeAlias

from tableside_client.calls import Batch, Call, CallLimits, Failures
from tableside_client.errors import TablesideError, from_problem
from tableside_client.http1 import Request
from tableside_client.paths import JSON, as_key, given, json_bytes, record_path, table_path

WRITER_CHARACTERS_MAX = 128
SEQUENCE_MAX = 2**63 - 1
ORDER_MIN, ORDER_MAX = -(2**63), 2**63 - 1

TokenArgument: TypeAlias = str | tuple[str, int] | None
"""A text that identifies one write, or a writer's name and a sequence number that rises with each of its writes."""


def parse_token(token: TokenArgument) -> tuple[str, int] | None:
    """Return the writer and the sequence of a token. A text has the sequence 1. Raises `ValueError` if out of range."""
    if token is None:
        return None
    writer, sequence = (token, 1) if isinstance(token, str) else token
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARACTERS_MAX:
        raise ValueError(f"the writer of a token is a string of 1 to {WRITER_CHARACTERS_MAX} characters")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"the sequence of a token is an integer from 0 to {SEQUENCE_MAX}")
    return writer, sequence


def check_order(order: Any) -> None:
    """Raise an error unless an order is None or a signed 64-bit integer: `TypeError` or `ValueError`."""
    if order is None:
        return
    if isinstance(order, bool) or not isinstance(order, int):
        raise TypeError(
            f"an order must be an integer, for example a time in microseconds since 1970, not {type(order).__name__}"
        )
    if not ORDER_MIN <= order <= ORDER_MAX:
        raise ValueError(f"an order must be an integer from {ORDER_MIN} to {ORDER_MAX}")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(time: datetime) -> int:
    """Return a time as an order: microseconds since 1970. A time without a time zone is UTC."""
    return (time.replace(tzinfo=time.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


def own_tokens() -> Iterator[tuple[str, int]]:
    """Return the tokens of a writer with a unique name, with rising sequences. Threads can share them."""
    return zip(itertools.repeat(f"client-{uuid.uuid4().hex}"), itertools.count(1), strict=False)


OPERATIONS_PER_REQUEST = 1_000

Document = dict[str, Any]

_UNCONDITIONAL = {"op", "key", "value", "ttl_s", "return", "token", "order", "forget"}
"""The members of puts and deletes that leave the same record when they are repeated."""


@dataclass(slots=True)
class Operation:
    """One operation, whether it is safe to repeat, and whether the client has added its token."""

    document: Document
    repeatable: bool
    own_token: bool = False

    @classmethod
    def create(cls, members: Mapping[str, Any], tokens: Iterator[tuple[str, int]] | None) -> "Operation":
        """Prepare an operation for sending. With `tokens`, a write that is not idempotent gets the next one."""
        document = {**members, "key": as_key(members.get("key"))}
        check_order(members.get("order"))
        token = parse_token(document.pop("token", None))
        idempotent = is_idempotent(members)
        own_token = tokens is not None and needs_token(members)
        if tokens is not None and own_token:
            token = next(tokens)
        if token is not None:
            document["token"] = {"writer": token[0], "sequence": token[1]}
        return cls(document, idempotent or token is not None, own_token)

    def without_own_token(self) -> "Operation":
        """Return the operation for a table that does not support tokens."""
        return Operation({name: member for name, member in self.document.items() if name != "token"}, repeatable=False)


def is_idempotent(members: Mapping[str, Any]) -> bool:
    """Return whether a repetition leaves the same record: of a get, a plain put or delete, or an ordered write."""
    if members.get("order") is not None:
        return True
    if members.get("op") not in ("put", "delete"):
        return members.get("op") == "get"
    if members.keys() <= _UNCONDITIONAL:  # most operations
        return True
    return all(members[name] is None or members[name] is False for name in members.keys() - _UNCONDITIONAL)


def needs_token(members: Mapping[str, Any]) -> bool:
    """Return whether a write gets a token of the client. It must then not overtake others of the same record."""
    return members.get("token") is None and not members.get("forget") and not is_idempotent(members)


def chunks(items: Iterable[Any], size: int = OPERATIONS_PER_REQUEST) -> Iterator[list[Any]]:
    """Divide items into lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def send(
    limits: CallLimits, table: str, operations: Sequence[Operation], *, is_first: bool = True
) -> Call[list[Document]]:
    """Send operations, and return their results in order, as `Batch` does."""
    batch = _JsonBatch(limits, table, list(operations), is_first)
    if operations:
        yield from batch.send_all()
    return batch.results


class _JsonBatch(Batch):
    def __init__(self, limits: CallLimits, table: str, operations: list[Operation], is_first: bool) -> None:
        super().__init__(limits, len(operations), is_first=is_first)
        self._table = table
        self._operations = operations
        self.results: list[Document] = [{}] * len(operations)

    def _key(self, position: int) -> str:
        return repr(self._operations[position].document["key"])

    def _is_repeatable(self, position: int) -> bool:
        return self._operations[position].repeatable

    def _send(self, positions: Sequence[int]) -> Call[Failures]:
        content = json_bytes({"operations": [self._operations[position].document for position in positions]})
        path, headers = table_path(self._table, "batch"), {"Content-Type": JSON}
        response = yield from self._limits.send(Request("POST", path, self._table, {}, headers, content))
        return self._keep(positions, response.json()["results"])

    def _fail(self, positions: Sequence[int], failure: TablesideError) -> Failures:
        members = ("code", "detail", "retriable", "applied", "retry_after_s")
        result = {"status": failure.status, "error": {name: getattr(failure, name) for name in members}}
        return self._keep(positions, [result] * len(positions))

    def _keep(self, positions: Sequence[int], received: Sequence[Document]) -> Failures:
        failures: dict[int, Document] = {}
        for position, result in zip(positions, received, strict=True):
            self.results[position] = result
            operation, failure = self._operations[position], result.get("error")
            if failure is None:
                continue
            if operation.own_token and failure["code"] == "unsupported":
                self._operations[position] = operation.without_own_token()
                failure = {**failure, "retriable": True, "applied": "no"}
            failures[position] = failure
        return failures


def error_of(table: str, result: Document) -> TablesideError | None:
    """Return the exception of a failed operation, None if it succeeded."""
    return from_problem(table, int(result["status"]), result["error"], None) if "error" in result else None


_METHODS = {"put": "PUT", "update": "PATCH", "delete": "DELETE"}


def single_write(table: str, operation: Operation) -> Request | None:
    """Return the request of a write, None if a batch should contain it because the request lacks one of its members."""
    left = dict(operation.document)
    op, key, if_match, order = left.pop("op"), left.pop("key"), left.pop("if_match", None), left.pop("order", None)
    token, body, params = left.pop("token", None), None, {}
    headers = given(
        **{
            "If-Match": if_match if if_match in (None, "*") else f'"{if_match}"',
            "Tableside-Token": token and f"{token['writer']}/{token['sequence']}",
            "Tableside-Order": None if order is None else str(order),
            "Prefer": "return=representation" if left.pop("return", False) else None,
        }
    )
    if op == "put":
        body, params = left.pop("value"), given(ttl_s=left.pop("ttl_s", None))
        headers |= {"If-None-Match": "*"} if left.pop("if_absent", False) else {}
    elif op == "update":
        body = {name: left.pop(name) for name in ("update", "default", "ttl_s") if name in left}
    elif left.pop("forget", False):
        params = {"forget": "true"}
    path = record_path(table, key, token and token["writer"], if_match)
    if left or path is None:
        return None
    content = None if body is None else json_bytes(body)
    if content is not None:
        headers["Content-Type"] = JSON
    return Request(_METHODS[op], path, table, params, headers, content, repeatable=operation.repeatable)
