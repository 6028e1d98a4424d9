"""Translates the driver's errors and the server's error replies, and states whether a write may be applied.

An error reply means that the command was not applied. If a connection breaks after a command was sent, it is unknown.
The server's messages are not passed on, because they may repeat the data of a command.
"""

import logging
import re
import socket
import ssl
from typing import TypeVar

from redis import exceptions

from ...core import (
    Applied,
    Internal,
    RecordUnreadable,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    Throttled,
    WritesRejected,
)

log = logging.getLogger(__name__)

Expected = TypeVar("Expected")

WRONG_TYPE = "another tool wrote the record: the Redis key is not a string"

_BY_START: dict[str, tuple[type[TableError], str]] = {
    "OOM ": (Throttled, "Redis is out of memory for writes"),
    "READONLY ": (WritesRejected, "Redis is a read-only replica"),
    "MISCONF ": (WritesRejected, "Redis rejects writes because it cannot save its data"),
    "NOREPLICAS ": (WritesRejected, "Redis rejects writes because it has too few replicas"),
    "LOADING ": (StoreUnavailable, "Redis is loading its data"),
    "MASTERDOWN ": (StoreUnavailable, "Redis is a replica that has lost its primary"),
    "CLUSTERDOWN ": (StoreUnavailable, "the Redis Cluster is down, or no node serves the key's slot"),
    "TRYAGAIN ": (StoreUnavailable, "the key's slot is migrating to another node of the Redis Cluster"),
    "ASK ": (StoreUnavailable, "the key's slot is served by another node of the Redis Cluster"),
    "MOVED ": (StoreUnavailable, "the key's slot is served by another node of the Redis Cluster"),
    "WRONGTYPE ": (RecordUnreadable, WRONG_TYPE),
    "BUSY ": (StoreUnavailable, "Redis is busy running a script"),
    "ERR max ": (StoreUnavailable, "Redis has too many connections"),
    "UNBLOCKED ": (StoreUnavailable, "Redis is changing its role"),
}

_MISCONFIGURED = {
    "WRONGPASS": "Redis rejected the authentication: the user or the password is wrong, or the user is disabled",
    "invalid password": "Redis rejected the authentication: the password is wrong",
    "NOAUTH": "Redis requires authentication: set `password`, and `username` for an ACL user",
    "without any password": "Redis has no password, and the store has one: remove it, or check the address",
    "no password is set": "Redis has no password, and the store has one: remove it, or check the address",
    "not allowed in cluster mode": "Redis is a cluster: its `stores` entry needs `cluster: true`, and database 0",
    "same slot": "Redis is a cluster: its `stores` entry needs `cluster: true`",
    "DENIED": "Redis is in protected mode: it needs a password, or `protected-mode no`, for remote clients",
}
"""What an error reply contains that no retry changes, and what it means."""


def from_connection_error(error: Exception, applied: Applied, place: str, database: int) -> TableError:
    """Return the error for a connection to a place and a database that could not be established, or broke."""
    if re.search(r"DB index|value is out of range, value must", str(error)):
        return StoreMisconfigured(f"Redis{place} has no database {database}")
    if (known := _known(error, applied)) is not None:
        return known
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return StoreMisconfigured(f"the TLS certificate of Redis is not accepted: {cause.verify_message}")
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            return StoreMisconfigured("Redis rejects the TLS connection: it may require `ssl_certfile`")
        if isinstance(cause, socket.gaierror):
            return StoreUnavailable(f"the host name of Redis{place} cannot be resolved")
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, exceptions.InvalidResponse):
        return StoreUnavailable(f"the server{place} does not respond like Redis", applied=applied)
    return StoreUnavailable(f"Redis{place} cannot be reached, or the connection broke", applied=applied)


def expected(reply: object, kind: type[Expected], applied: Applied = "no") -> Expected:
    """Return a reply that has this type. Raise the error for any other."""
    if not isinstance(reply, kind):
        raise from_unexpected_reply(reply, applied)
    return reply


def from_unexpected_reply(reply: object, applied: Applied = "no") -> TableError:
    """Return the error for an error reply or another unexpected one.

    `applied` is for replies other than errors of single commands: a script may have failed after it wrote.
    """
    if isinstance(reply, TableError):
        return reply
    if not isinstance(reply, Exception):
        return StoreUnavailable("the server does not respond like Redis", applied=applied)
    if (known := _known(reply, applied)) is not None:
        return known
    log.error("Redis rejected a command: %s", str(reply).partition(" ")[0])
    return Internal("Redis rejected a command")


def _known(error: Exception, applied: Applied) -> TableError | None:
    """Return the error for an error reply that has a meaning of its own, else None."""
    code = getattr(error, "status_code", None) or ""  # The driver removes the codes that it knows from the text.
    text = f"{code} {error}".lstrip()
    for start, (kind, detail) in _BY_START.items():
        if text.startswith(start):
            return kind(detail)
    for part, detail in _MISCONFIGURED.items():
        if part in text:
            return StoreMisconfigured(detail)
    if unknown := re.search(r"unknown command ['`]([\w|]+)", text, re.IGNORECASE):
        return StoreMisconfigured(f"Redis does not know the command {unknown[1].upper()}: it is renamed or disabled")
    if text.startswith("NOPERM"):
        return StoreMisconfigured(_not_permitted(text))
    if re.search(r"executing the script can't|ACL failure in script|called from script", text):
        return StoreMisconfigured(_not_permitted(text), applied=applied)
    return None


def _not_permitted(text: str) -> str:
    """Return what the ACL of the user lacks, from the server's message, which has no names of keys or channels."""
    if command := re.search(r"'([\w|, ]+)' command", text):
        return f"Redis does not permit this user the command {command[1].replace('|', ' ').upper()}"
    if "channel" in text:
        return "Redis does not permit this user the channel (&pattern of its ACL)"
    if re.search(r"\bkeys?\b", text):
        return (
            "Redis does not permit this user the key: its ACL needs ~PREFIX* with the table's prefix, ~_ts*, and "
            "~*@PREFIX* for generations"
        )
    return "Redis does not permit this user a command that scripts need, such as TIME"
