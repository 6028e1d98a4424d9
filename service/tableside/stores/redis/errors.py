"""Translates the driver's errors and the server's error replies, and states whether a write may be applied.

An error reply means that the command was not applied. If a connection breaks after a command was sent, it is unknown.
The server's messages are not passed on, because they may repeat the data of a command.
"""

import logging

from redis import exceptions

from ...core import Applied, Internal, StoreUnavailable, TableError, Throttled, WritesRejected
from .records import wrong_type

log = logging.getLogger(__name__)

_ACCESS = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)

_BY_CLASS: list[tuple[type[Exception] | tuple[type[Exception], ...], str]] = [
    (_ACCESS, "Redis rejected the authentication, or does not permit this user to run the command"),
    (exceptions.BusyLoadingError, "Redis is loading its data"),
    (exceptions.MasterDownError, "Redis is a replica that has lost its primary"),
    (exceptions.ClusterDownError, "the Redis Cluster is down, or no node serves the key's slot"),
    (exceptions.TryAgainError, "the key's slot is migrating to another node of the Redis Cluster"),
    (exceptions.AskError, "the key's slot is served by another node of the Redis Cluster"),
]

_REJECTS_WRITES = {
    "READONLY": "Redis is a read-only replica",
    "MISCONF": "Redis rejects writes because it cannot save its data",
    "NOREPLICAS": "Redis rejects writes because it has too few replicas",
}

_BY_WORD = {
    "BUSY": "Redis is busy running a script",
    "CROSSSLOT": "Redis is a cluster: its `stores` entry needs `cluster: true`",
    "max": "Redis has too many connections",
    "UNBLOCKED": "Redis is changing its role",
}


def from_error_reply(error: Exception) -> TableError:
    """Return the error for an error reply: the command was not applied."""
    if isinstance(error, exceptions.OutOfMemoryError):
        return Throttled("Redis is out of memory for writes")
    if isinstance(error, exceptions.ReadOnlyError):
        return WritesRejected(_REJECTS_WRITES["READONLY"])
    for kind, detail in _BY_CLASS:
        if isinstance(error, kind):
            return StoreUnavailable(detail)
    word = str(error).partition(" ")[0]
    if word == "WRONGTYPE":
        return wrong_type()
    if word in _REJECTS_WRITES:
        return WritesRejected(_REJECTS_WRITES[word])
    if word in _BY_WORD:
        return StoreUnavailable(_BY_WORD[word])
    log.error("Redis rejected a command: %s", word)
    return Internal("Redis rejected a command")


def from_connection_error(error: Exception, applied: Applied) -> TableError:
    """Return the error for a connection that could not be established, or broke."""
    if isinstance(error, _ACCESS):
        return StoreUnavailable("Redis rejected the authentication")
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable("Redis is loading its data", applied=applied)
    if "certificate" in str(error).lower():
        return StoreUnavailable("the TLS certificate of Redis was not accepted")
    if isinstance(error, exceptions.InvalidResponse):
        return StoreUnavailable("the server does not respond like Redis", applied=applied)
    return StoreUnavailable("Redis cannot be reached, or the connection broke", applied=applied)


def from_unexpected_reply(reply: object, applied: Applied = "no") -> TableError:
    """Return the error for an unexpected reply. `applied` is for replies that are not Redis's own errors."""
    if isinstance(reply, TableError):
        return reply
    if isinstance(reply, Exception):
        return from_error_reply(reply)
    return StoreUnavailable("the server does not respond like Redis", applied=applied)
