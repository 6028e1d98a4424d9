"""Callers who hang up before they are answered: the protocol notices, and whoever serves the request is told.

So nobody has to wait for it beside the work itself, which would cost every request a task. Knows nothing of either.
"""

from collections.abc import Callable

from starlette.types import Scope

_SCOPE = "tableside.hung_up"


def expect(scope: Scope, told: Callable[[], None]) -> bool:
    """Have `told` called when the caller hangs up, at most once; return whether somebody is there still."""
    if _SCOPE in scope:
        return False
    scope[_SCOPE] = told
    return True


def hung_up(scope: Scope) -> None:
    """Say that the caller of a request that is not answered has hung up."""
    told: Callable[[], None] | None = scope.get(_SCOPE)
    scope[_SCOPE] = None
    if told is not None:
        told()


def over(scope: Scope) -> None:
    """Tell nobody any more: the request is answered. Else it would be garbage that only a search finds."""
    scope[_SCOPE] = None
