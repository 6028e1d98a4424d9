"""What a server tells the application about a request through its ASGI scope: disconnects and graceful shutdown.

An application that waited for `http.disconnect` itself would need a task per request.
"""

from collections.abc import Callable

from starlette.types import Scope

DISCONNECT_KEY = "tableside.on_disconnect"
"""Where in the ASGI scope the callback for a disconnect is. None means that the client has disconnected."""

_DRAINING = "tableside.draining"


def notify_disconnect(scope: Scope) -> None:
    """Report that the client disconnected before it had a response."""
    callback: Callable[[], None] | None = scope.get(DISCONNECT_KEY)
    scope[DISCONNECT_KEY] = None
    if callback is not None:
        callback()


def mark_draining(scope: Scope) -> None:
    """Mark a request that arrived while the service was shutting down."""
    scope[_DRAINING] = True


def is_draining(scope: Scope) -> bool:
    """Return whether the service was shutting down when the request arrived."""
    return _DRAINING in scope
