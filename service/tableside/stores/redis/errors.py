"""What a driver's error or an error reply of the server is in our words, and whether a write may have happened.

An error reply means that the command was not done; a connection that was lost after something was sent means that
nobody knows. Texts of the server stay here: they may repeat what was sent.
"""

import logging

from redis import exceptions

from ...core import Applied, Internal, StoreUnavailable, TableError, Throttled
from .records import other_type

log = logging.getLogger(__name__)

_ACCESS = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)

_BY_CLASS: list[tuple[type[Exception] | tuple[type[Exception], ...], str]] = [
    (_ACCESS, "Redis refused the authentication, or does not permit this user the command"),
    (exceptions.BusyLoadingError, "Redis is loading its data"),
    (exceptions.ReadOnlyError, "Redis is a replica that takes no writes"),
    (exceptions.MasterDownError, "Redis is a replica that has lost its primary"),
    (exceptions.ClusterDownError, "the Redis Cluster is down, or nobody serves the key's slot"),
    (exceptions.TryAgainError, "the key's slot is on its way to another node of the Redis Cluster"),
    (exceptions.AskError, "the key's slot is served by another node of the Redis Cluster"),
]

_BY_WORD = {
    "BUSY": "Redis is busy with a script",
    "MISCONF": "Redis takes no writes because it cannot save its data",
    "NOREPLICAS": "Redis takes no writes because it has too few replicas",
    "CROSSSLOT": "Redis is a cluster: its `stores` entry needs `cluster: true`",
    "max": "Redis has too many connections",
    "UNBLOCKED": "Redis is changing its role",
}


def refused(error: Exception) -> TableError:
    """Return what an error reply means: the command was not done."""
    if isinstance(error, exceptions.OutOfMemoryError):
        return Throttled("Redis has no memory left for writes")
    for kind, detail in _BY_CLASS:
        if isinstance(error, kind):
            return StoreUnavailable(detail)
    word = str(error).partition(" ")[0]
    if word == "WRONGTYPE":
        return other_type()
    if word in _BY_WORD:
        return StoreUnavailable(_BY_WORD[word])
    log.error("Redis refused a command: %s", word)
    return Internal("Redis refused a command that it should know")


def broken(error: Exception, applied: Applied) -> TableError:
    """Return what it means that a connection could not be made, or broke."""
    if isinstance(error, _ACCESS):
        return StoreUnavailable("Redis refused the authentication")
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable("Redis is loading its data", applied=applied)
    if "certificate" in str(error).lower():
        return StoreUnavailable("the TLS certificate of Redis is not accepted")
    if isinstance(error, exceptions.InvalidResponse):
        return StoreUnavailable("what answers does not speak as Redis does", applied=applied)
    return StoreUnavailable("Redis cannot be reached, or broke the connection", applied=applied)


def failed(reply: object, applied: Applied = "no") -> TableError:
    """Return what a reply means that is not the one expected; `applied` holds if it is none of Redis's errors."""
    if isinstance(reply, TableError):
        return reply
    if isinstance(reply, Exception):
        return refused(reply)
    return StoreUnavailable("what answers does not speak as Redis does", applied=applied)
