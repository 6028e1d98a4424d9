"""Orders of writes on the command line and in files: integers, or times."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from tableside_client.json_batch import check_order

_INTEGER = re.compile("[+-]?[0-9]{1,19}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_order(order: Any, what: str = "the order") -> int:
    """Return an order: an integer, or text with an integer or a time, which is in microseconds since 1970.

    A time without an offset is in UTC. Raises ValueError, with the name `what`, for anything else.
    """
    try:
        if isinstance(order, str):
            order = int(order) if _INTEGER.fullmatch(order) else _microseconds(order)
        check_order(order)
    except (TypeError, ValueError):
        order = None
    if order is None:
        raise ValueError(f"{what} is neither an integer within 64 bits nor a time such as 2026-11-20T08:00:00Z")
    return int(order)


def _microseconds(text: str) -> int:
    time = datetime.fromisoformat(text)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def _option(text: str) -> int:
    try:
        return parse_order(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


OrderOption = Annotated[
    int | None,
    typer.Option(
        parser=_option,
        metavar="ORDER",
        help="An integer, or a time such as 2026-11-20T08:00:00Z, which is in microseconds. Only members that no write "
        "with a higher order has written are changed.",
    ),
]
