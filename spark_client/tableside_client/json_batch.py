"""Operations in JSON: their tokens, single requests, and batches with retries by position."""

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from tableside_client.calls import Call, CallLimits, Request
from tableside_client.errors import TablesideError, from_problem
from tableside_client.paths import JSON, as_key, given, json_bytes, record_path, table_path, write_headers

WRITER_CHARACTERS_MAX = 128
SEQUENCE_MAX = 2**63 - 1

TokenArgument: TypeAlias = str | tuple[str, int] | None
"""A text that identifies one write, or a writer's name and a sequence number that rises with each of its writes."""


def parse_token(token: TokenArgument) -> tuple[str, int] | None:
    """Return the writer and the sequence of a token. Raises `ValueError` if one is out of range.

    A text is a token of one use, as in the header `Idempotency-Key`: its sequence is 1.
    """
    if token is None:
        return None
    writer, sequence = (token, 1) if isinstance(token, str) else token
    if not isinstance(writer, str) or not 1 <= len(writer) <= WRITER_CHARACTERS_MAX:
        raise ValueError(f"the writer of a token is a string of 1 to {WRITER_CHARACTERS_MAX} characters")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"the sequence of a token is an integer from 0 to {SEQUENCE_MAX}")
    return writer, sequence


class TokenSource:
    """Creates the tokens of one writer, with rising sequences. The writer's name is unique."""

    def __init__(self) -> None:
        self._writer = f"client-{uuid.uuid4().hex}"
        self._sequences = itertools.count(1)

    def next(self) -> tuple[str, int]:
        """Return the next token."""
        return self._writer, next(self._sequences)


OPERATIONS_PER_REQUEST = 1_000
"""The maximum number of operations in one request."""

Document = dict[str, Any]


@dataclass(slots=True)
class Operation:
    """One operation of a batch.

    `repeatable` means that it may be sent again although it may have been applied. `own_token` means that the client
    has added the token.
    """

    document: Document
    repeatable: bool
    own_token: bool = False

    @classmethod
    def create(cls, members: Mapping[str, Any], own_tokens: TokenSource | None) -> "Operation":
        """Prepare an operation for sending. With `own_tokens`, a write that is not idempotent gets a token."""
        document = {**members, "key": as_key(members.get("key"))}
        token = parse_token(document.pop("token", None))
        idempotent = is_idempotent(members)
        own_token = own_tokens is not None and token is None and not idempotent
        if own_tokens is not None and own_token:
            token = own_tokens.next()
        if token is not None:
            document["token"] = {"writer": token[0], "sequence": token[1]}
        return cls(document, idempotent or token is not None, own_token)

    def without_own_token(self) -> "Operation":
        """Return the operation for a table that does not support tokens."""
        return Operation({name: member for name, member in self.document.items() if name != "token"}, repeatable=False)


def is_idempotent(members: Mapping[str, Any]) -> bool:
    """Return whether repeating an operation leaves the same record: a get, or an unconditional put or delete."""
    conditional = members.get("if_match") is not None or bool(members.get("if_absent"))
    return members.get("op") == "get" or (members.get("op") in ("put", "delete") and not conditional)


def chunks(items: Iterable[Any], size: int = OPERATIONS_PER_REQUEST) -> Iterator[list[Any]]:
    """Divide items into lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def send(
    limits: CallLimits, table: str, operations: Sequence[Operation], *, is_first: bool = True
) -> Call[list[Document]]:
    """Send operations, and return their results in order. Operations that may still succeed are sent again.

    Operations on one key keep their order. `is_first` means that no earlier operation of the caller has been sent.

    Raises:
        TablesideError: The service rejected the whole first request permanently.
    """
    results: list[Document] = [{}] * len(operations)
    waiting = list(enumerate(operations))
    while waiting:
        received = yield from _attempt(limits, table, [operation for _, operation in waiting], is_first=is_first)
        is_first = False
        again: list[tuple[int, Operation]] = []
        blocked: set[str] = set()
        for (position, operation), result in zip(waiting, received, strict=True):
            results[position] = result
            if (retried := _next_attempt(operation, result, blocked)) is not None:
                again.append((position, retried))
        failures = [results[position]["error"] for position, _ in again]
        if not (yield from _may_continue(limits, failures, progressed=len(again) < len(waiting))):
            break
        waiting = again
    return results


def _may_continue(limits: CallLimits, failures: Sequence[Document], *, progressed: bool) -> Call[bool]:
    """Return whether to send the failed operations again, after a pause unless the next attempt certainly differs."""
    codes = {failure["code"] for failure in failures}
    if codes <= {"unsupported"}:  # Their tokens have been removed.
        return bool(failures)
    if codes <= {"unsupported", "too_large"}:  # The response was full, and the next one has room for some of them.
        return progressed
    retry_after_s = max(failure.get("retry_after_s") or 0.0 for failure in failures)
    return (yield from limits.pause(retry_after_s, f"{failures[0]['code']}: {failures[0]['detail']}"))


def _next_attempt(operation: Operation, result: Document, blocked: set[str]) -> Operation | None:
    """Return the operation to send again, if any.

    `blocked` are the keys of operations with an unknown outcome that are not sent again. Later operations on the same
    key are not sent again either, because that might change their order.
    """
    failure = result.get("error")
    if failure is None:
        return None
    if operation.own_token and failure["code"] == "unsupported":
        return operation.without_own_token()
    key = repr(operation.document["key"])
    safe = failure.get("applied") == "no" or operation.repeatable
    if failure.get("retriable") and safe and key not in blocked:
        return operation
    if failure.get("applied") == "unknown":
        blocked.add(key)
    return None


def _attempt(
    limits: CallLimits, table: str, operations: Sequence[Operation], *, is_first: bool
) -> Call[list[Document]]:
    """Send operations once, in one request or, if the service rejects it as too large, in halves.

    Raises an error only if no operation may have been applied. Otherwise it is the result of the operations.
    """
    content = json_bytes({"operations": [operation.document for operation in operations]})
    path = table_path(table, "batch")
    try:
        response = yield from limits.send(Request("POST", path, table, headers={"Content-Type": JSON}, content=content))
    except TablesideError as failure:
        if failure.status == 413 and len(operations) > 1:
            half = len(operations) // 2
            first = yield from _attempt(limits, table, operations[:half], is_first=is_first)
            return first + (yield from _attempt(limits, table, operations[half:], is_first=False))
        if is_first and failure.status != 413 and not failure.retriable:
            raise
        return [_failed(failure)] * len(operations)
    return list(response.json()["results"])


def _failed(failure: TablesideError) -> Document:
    """Return the result of an operation whose request failed as a whole."""
    members = ("code", "detail", "retriable", "applied", "retry_after_s")
    return {"status": failure.status, "error": {name: getattr(failure, name) for name in members}}


def error_of(table: str, result: Document) -> TablesideError | None:
    """Return the exception of a failed operation, None if it succeeded."""
    return from_problem(table, int(result["status"]), result["error"], None) if "error" in result else None


_METHODS = {"put": "PUT", "update": "PATCH", "delete": "DELETE"}


def single_write(table: str, operation: Operation) -> Request | None:
    """Return the request of a write, None if a batch should contain its key, its token or its etag."""
    members = operation.document
    token = members.get("token") and (members["token"]["writer"], members["token"]["sequence"])
    path = record_path(table, members["key"], token and token[0], members.get("if_match"))
    if path is None:
        return None
    headers = write_headers(members.get("if_match"), token, members.get("return", False))
    op, params, content = members["op"], {}, None
    if op == "put":
        content, params = json_bytes(members["value"]), given(ttl_s=members.get("ttl_s"))
        headers |= {"If-None-Match": "*"} if members.get("if_absent") else {}
    elif op == "update":
        content = json_bytes({name: members[name] for name in ("update", "default", "ttl_s") if name in members})
    if content is not None:
        headers["Content-Type"] = JSON
    return Request(_METHODS[op], path, table, params, headers, content, repeatable=operation.repeatable)
