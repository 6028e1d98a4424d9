"""Who asks, by bearer token, and which tables that caller may read and write.

Tokens are known by their SHA-256 digests only. Knows nothing of routes, and of requests only the path and the headers.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Sequence
from fnmatch import translate
from hashlib import sha256
from typing import Literal, TypeAlias

from starlette.types import Scope

from .caller import CALLER
from .errors import TableError
from .notes import Notes
from .operations import Get, Operation, Put, Update
from .settings import AuthSettings, TokenSettings

SCOPE_KEY = "tableside.caller"
"""Where in the ASGI scope a request's caller is."""

Right: TypeAlias = Literal["read", "write"]

_METRICS = "/metrics"
_PUBLIC = frozenset({"/livez", "/readyz", "/openapi.json", "/docs", "/docs/oauth2-redirect"})
_PUBLIC_UNDER = "/static-offline-docs/"

_CONSOLE = "/console"
_BASIC = re.compile(rb"basic +([A-Za-z0-9+/=]+)", re.IGNORECASE)
_BEARER = re.compile(rb"bearer +([\x21-\x7e]+)", re.IGNORECASE)


def _compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what matches names that any of the shell's patterns does; matching takes a tenth of a microsecond."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


class Unauthenticated(TableError):
    """No token was given that is known here; `challenge` says how one is given."""

    code = "unauthenticated"
    challenge = "Bearer"


class UnauthenticatedOnPages(Unauthenticated):
    """The same where people come with a browser, which then asks them for the token, as a password."""

    challenge = 'Basic realm="Tableside: the token is the password", charset="UTF-8"'


class Forbidden(TableError):
    """The caller may not do that."""

    code = "forbidden"


class Caller:
    """Who asks, by name, and what that caller may do: `read` and `write` are patterns of tables' names."""

    __slots__ = ("_patterns", "admin", "name")

    def __init__(self, name: str, read: Iterable[str] = (), write: Iterable[str] = (), *, admin: bool = False) -> None:
        self.name = name
        self.admin = admin
        self._patterns = {"read": _compiled(read), "write": _compiled(write)}

    def may(self, right: Right, table: str) -> bool:
        """Return whether the caller has the right on a table of that name, whether or not there is one."""
        return self._patterns[right].match(table) is not None

    def may_some(self, table: str) -> bool:
        """Return whether the caller has any right on a table of that name."""
        return self.may("read", table) or self.may("write", table)

    def check(self, right: Right, table: str) -> None:
        """Raise Forbidden if the caller has not the right on the table."""
        if not self.may(right, table):
            raise self.refused(right, table)

    def check_some(self, table: str) -> None:
        """Raise Forbidden if the caller has no right on the table."""
        if not self.may_some(table):
            raise Forbidden(f"table {table!r}: the caller {self.name!r} has no right on it")

    def refused(self, right: Right, table: str) -> Forbidden:
        """Return the refusal of an operation that needs the right."""
        return Forbidden(f"table {table!r}: the caller {self.name!r} may not {right} it")


ANYBODY = Caller("", ["*"], ["*"], admin=True)
"""Every caller where no tokens are configured."""

NOBODY = Caller("")
"""Every caller of what is public where tokens are configured."""


class Auth:
    """The callers that are known; exchangeable while requests are served. Without settings anybody may do anything."""

    def __init__(self, settings: AuthSettings | None) -> None:
        self.change(settings)

    def change(self, settings: AuthSettings | None) -> None:
        """Know these callers from now on. Requests that were let in keep the rights that they came with."""
        self._public = _PUBLIC if settings is None or settings.metrics == "admin" else _PUBLIC | {_METRICS}
        self._callers = None if settings is None else dict(map(_known, settings.tokens))

    def known(self, token: bytes) -> Caller | None:
        """Return whose token it is, None if nobody's; where no tokens are configured it is anybody's."""
        if self._callers is None:
            return ANYBODY
        # By its time a look-up tells at most something about a digest, and no token can be made from that: what a
        # caller can vary is the token, and the next one's digest has nothing in common with this one's.
        return self._callers.get(sha256(token).digest())

    def admit(self, scope: Scope, notes: Notes) -> None:
        """Note who asks. Raise Unauthenticated where a token is needed and none was given that is known.

        It reads no body and waits for nothing, so it belongs before whatever bounds how much is under way: requests
        without a token then take no place from those with one.
        """
        if self._callers is None:
            scope[SCOPE_KEY] = ANYBODY
            return
        path = scope["path"]
        if path in self._public or path.startswith(_PUBLIC_UNDER):
            scope[SCOPE_KEY] = NOBODY
            return
        # What is missing or malformed is looked up like any other token, as the empty one, which nobody has.
        on_pages = path == _CONSOLE or path.startswith(f"{_CONSOLE}/")
        if (caller := self.known(_password(scope) or _token(scope) if on_pages else _token(scope))) is None:
            raise (UnauthenticatedOnPages if on_pages else Unauthenticated)(
                "a bearer token that is known here is needed: Authorization: Bearer <token>"
            )
        scope[SCOPE_KEY] = caller
        notes.caller = caller.name
        CALLER.set(caller.name)
        if path == _METRICS and not caller.admin:
            raise Forbidden(f"the metrics are for admins, and the caller {caller.name!r} is none")


def caller_of(scope: Scope) -> Caller:
    """Return who asks; every request that was let in has a caller."""
    found: Caller = scope[SCOPE_KEY]
    return found


def permitted(
    caller: Caller, table: str, operations: Sequence[Operation | TableError]
) -> Sequence[Operation | TableError]:
    """Return the operations of a batch, with a refusal in the place of each that the caller may not do."""
    if caller is ANYBODY:
        return operations
    refusals = {right: caller.refused(right, table) for right in _RIGHTS if not caller.may(right, table)}
    if not refusals:
        return operations
    return [_refusal(operation, refusals) or operation for operation in operations]


_RIGHTS: tuple[Right, ...] = ("read", "write")


def _refusal(operation: Operation | TableError, refusals: dict[Right, Forbidden]) -> Forbidden | None:
    match operation:
        case TableError():
            return None
        case Get():
            return refusals.get("read")
        case Put(returning=True) | Update(returning=True):
            return refusals.get("write") or refusals.get("read")
        case _:
            return refusals.get("write")


def _known(token: TokenSettings) -> tuple[bytes, Caller]:
    caller = Caller(token.name, token.read, token.write, admin=token.admin)
    return bytes.fromhex(token.sha256.get_secret_value()), caller


def _token(scope: Scope) -> bytes:
    """Return the token that a request carries; empty if it carries none, or several, or what is none."""
    match = _BEARER.fullmatch(_authorization(scope))
    return match[1] if match else b""


def _password(scope: Scope) -> bytes:
    """Return the token that a browser sends as the password of any user; empty if it sends none."""
    if (match := _BASIC.fullmatch(_authorization(scope))) is None:
        return b""
    try:
        return b64decode(match[1], validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _authorization(scope: Scope) -> bytes:
    given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    return given[0] if len(given) == 1 else b""
