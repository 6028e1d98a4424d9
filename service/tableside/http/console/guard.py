"""What pages are sent with, and which requests may change anything.

A page of another site can make a browser send a form here, with whatever the browser adds by itself. It cannot make it
send a header of its own, nor say that it is of the same origin.
"""

from typing import ClassVar
from urllib.parse import urlsplit

from starlette.requests import Request

from ...core import TableError
from .access import Right, allowed

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


class Refused(TableError):
    """The console does not do this for whoever asks."""

    code: ClassVar[str] = "forbidden"


def check_may(request: Request, table: str, right: Right) -> None:
    """Raise Refused unless whoever asks may read, or write, records of the table."""
    if not allowed(request, table, right):
        raise Refused(f"{right} is not allowed on this table")


def check_change(request: Request) -> None:
    """Raise Refused unless records may be changed on the console, and a page of it has sent this."""
    if not request.app.state.settings.console.edit:
        raise Refused("records are not changed here: the configuration does not set console.edit")
    if request.headers.get("hx-request") != "true" or not _same_origin(request):
        raise Refused("only a page of the console itself may ask for this")


def _same_origin(request: Request) -> bool:
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    origin, host = request.headers.get("origin"), request.headers.get("host")
    return origin is not None and host is not None and urlsplit(origin).netloc == host
