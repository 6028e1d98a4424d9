"""Who may see and change what: the one place where the pages ask."""

from typing import Literal

from starlette.requests import Request

from ..request_context import caller_of

Right = Literal["read", "write"]


def allowed(request: Request, table: str, right: Right) -> bool:
    """Whether whoever sent the request may read, or write, records of the table.

    Every page asks for every table that it shows, and before every operation.
    """
    return caller_of(request.scope).may(right, table)
