"""What a server tells the application about a request through its ASGI scope: disconnects and graceful shutdown.

An application that waited for `http.disconnect` itself would need a task per request.
"""

from collections.abc import Callable

from starlette.types import Scope

_DISCONNECT = "tableside.on_disconnect"
_DRAINING = "tableside.draining"


def on_disconnect(scope: Scope, callback: Callable[[], None]) -> bool:
    """Call `callback` at most once, when the client disconnects. Return whether it is still connected."""
    if _DISCONNECT in scope:
        return False
    scope[_DISCONNECT] = callback
    return True


def notify_disconnect(scope: Scope) -> None:
    """Report that the client disconnected before it had a response."""
    callback: Callable[[], None] | None = scope.get(_DISCONNECT)
    scope[_DISCONNECT] = None
    if callback is not None:
        callback()


def clear(scope: Scope) -> None:
    """Drop the callback of an answered request, which would otherwise keep both alive in a reference cycle."""
    scope[_DISCONNECT] = None


def mark_draining(scope: Scope) -> None:
    """Mark a request that arrived while the service was shutting down."""
    scope[_DRAINING] = True


def is_draining(scope: Scope) -> bool:
    """Return whether the service was shutting down when the request arrived."""
    return _DRAINING in scope
