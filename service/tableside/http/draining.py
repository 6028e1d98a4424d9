"""That the service is about to stop, as the requests see it that still come: they are served, and none follows them.

The protocol marks them, whoever is asked whether the service is ready looks. Knows nothing of either.
"""

from starlette.types import Scope

_SCOPE = "tableside.draining"


def mark(scope: Scope) -> None:
    """Note that the service was about to stop when this request came."""
    scope[_SCOPE] = True


def marked(scope: Scope) -> bool:
    """Return whether it was."""
    return _SCOPE in scope
