"""By which names the service is asked: a page whose own name was pointed here shows by another one.

A browser lets a page read what comes from the page's own host, whatever machine that name stands for at the moment (DNS
rebinding). Such a request names that host; one for an address, or for `localhost`, cannot be of such a page, and
hardly one for a name without a dot, which nobody can register.
"""

import re
from collections.abc import Iterable

from starlette.types import Scope

from ..core import TableError

KNOWN_MAX = 1000
"""How many values of `Host` are remembered as good."""

_ADDRESS = re.compile(r"(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.]+(%[0-9A-Za-z._~-]+)?\])(:\d*)?")
_LOCAL = ("localhost", "*.localhost")
_WITHOUT_DOT = r"[A-Za-z0-9_-]+(:\d*)?"


class Misdirected(TableError):
    """The request is for a host that this service is not."""

    code = "forbidden"


class Hosts:
    """The names of this service: any, if none is given; of a `local` one, then only those that no page can have."""

    def __init__(self, names: Iterable[str], *, local: bool = False) -> None:
        self._local = local
        self.change(names)

    def change(self, names: Iterable[str]) -> None:
        """Have these names from now on."""
        given = tuple(names)
        patterns = [*map(_pattern, (*given, *_LOCAL)), *([_WITHOUT_DOT] if self._local else [])]
        self._names = re.compile("|".join(patterns), re.IGNORECASE)
        self._any = not given and not self._local
        self._known: set[bytes] = set()

    def check(self, scope: Scope) -> None:
        """Raise Misdirected if a request names a host that is not this service, and not an address."""
        if self._any:
            return
        for name, value in scope["headers"]:
            if name == b"host" and value not in self._known and not self._is_ours(value):
                raise Misdirected(
                    "the service is not known by the name in Host; `hosts` in its configuration lists its names"
                )

    def _is_ours(self, value: bytes) -> bool:
        text = value.decode("latin-1")
        ours = _ADDRESS.fullmatch(text) or self._names.fullmatch(text)
        if ours and len(self._known) < KNOWN_MAX:
            self._known.add(value)
        return bool(ours)


def _pattern(name: str) -> str:
    below = name.startswith("*.")
    return (r"[A-Za-z0-9_.-]+\." if below else "") + re.escape(name.removeprefix("*.")) + r"\.?(:\d*)?"
