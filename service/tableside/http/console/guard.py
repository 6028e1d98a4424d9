"""The security headers of pages, and the permission checks of requests.

A page of another site can make a browser send a form to the console, together with the browser's credentials. It cannot
add a custom header, or claim to be of the same origin, so changes require both.
"""

from typing import ClassVar, Literal
from urllib.parse import urlsplit

from starlette.requests import Request

from ...core import TableError
from ..request_context import caller_of

Permission = Literal["read", "write"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

PAGE_HEADERS = {**HEADERS, "Cache-Control": "no-store", "Vary": "HX-Request"}


def allowed(request: Request, table: str, permission: Permission) -> bool:
    """Return whether the caller may read or write records of the table.

    Pages check it for every table that they show, and before every operation.
    """
    return caller_of(request.scope).may(permission, table)


class Refused(TableError):
    """The console rejects the request of this caller."""

    code: ClassVar[str] = "forbidden"


def check_permission(request: Request, table: str, permission: Permission) -> None:
    """Raise Refused unless the caller may read or write records of the table."""
    if not allowed(request, table, permission):
        raise Refused(f"{permission} is not allowed on this table")


def check_change(request: Request) -> None:
    """Raise Refused unless the console allows changes and the request comes from one of its pages."""
    if not request.app.state.settings.console.edit:
        raise Refused("the console is read-only: the configuration does not set console.edit")
    if request.headers.get("hx-request") != "true" or not _same_origin(request):
        raise Refused("only pages of the console may send this request")


def _same_origin(request: Request) -> bool:
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    origin, host = request.headers.get("origin"), request.headers.get("host")
    return origin is not None and host is not None and urlsplit(origin).netloc == host
