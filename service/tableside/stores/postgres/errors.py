"""What PostgreSQL and its driver raise, as errors of ours; details have names and codes, never a value.

code    what                                     becomes
40001, 40P01   serialization failure, deadlock   tried again, then Contended
22 23 44 54 P0 the statement's data              InvalidOperation (54: TooLarge) of the operation that is at fault
42501   permission denied                        Unsupported
42P01   no such table                            TableNotFound
53300   too many connections                     Throttled
55P03   a lock was not to be had                 Contended
57014   cancelled, by a limit of the server's    StoreUnavailable
others  shutdown, start, read-only, disk …       StoreUnavailable
"""

import asyncio

import asyncpg

from ...core import (
    Applied,
    Contended,
    InvalidOperation,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Throttled,
    TooLarge,
    Unsupported,
)

DRIVER_ERRORS = (
    OSError,
    asyncio.IncompleteReadError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

_ROLLED_BACK = frozenset({"40001", "40P01"})
_OF_ONE_ROW = ("22", "23", "44", "54", "P0")
_CONNECTION_GONE = ("08", "57P")


def rolled_back(error: BaseException) -> bool:
    """Whether the server undid a transaction that may do better when it is tried again."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _ROLLED_BACK


def of_one_row(error: BaseException) -> bool:
    """Whether the server refused what some rows of a statement hold, so that the others may do without them."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_OF_ONE_ROW)


def connection_lost(error: BaseException) -> bool:
    """Whether the connection broke, so that what was sent on it may have been done or not."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_CONNECTION_GONE)
    return True


def refusal(error: asyncpg.PostgresError) -> TableError:
    """Return what a row that the server refused is answered with."""
    code = error.sqlstate or ""
    constraint, column = getattr(error, "constraint_name", None), getattr(error, "column_name", None)
    if code.startswith("54"):
        return TooLarge("PostgreSQL's own limit for a key, a row or a value is exceeded")
    if code == "23502" and column:
        return InvalidOperation(f"column {column!r} may not be null")
    if constraint:
        return InvalidOperation(f"constraint {constraint!r} of the table refuses the write")
    if code.startswith("P0"):
        return InvalidOperation("a trigger or function of the table refuses the write")
    return InvalidOperation(f"PostgreSQL refuses the write (SQLSTATE {code})")


def translated(error: BaseException, table: str, *, applied: Applied) -> TableError:
    """Return what every operation of a failed statement is answered with.

    `applied` is that of a write which was sent and not answered; a server that answers with an error has undone it.
    """
    place = f"table {table!r}: " if table else ""
    if not isinstance(error, asyncpg.PostgresError):
        return StoreUnavailable(f"{place}the connection to PostgreSQL failed ({type(error).__name__})", applied=applied)
    code = error.sqlstate or ""
    match code:
        case "42501":
            return Unsupported(f"{place}PostgreSQL does not permit this role to do that")
        case "42P01" | "3F000":
            return TableNotFound(f"{place}PostgreSQL has no such table")
        case "53300":
            return Throttled(f"{place}PostgreSQL has too many connections")
        case "55P03":
            return Contended(f"{place}others held the record's lock for longer than PostgreSQL was told to wait")
        case "57014":
            return StoreUnavailable(f"{place}PostgreSQL cancelled the statement")
    detail = f"{place}PostgreSQL cannot do that now (SQLSTATE {code})"
    return StoreUnavailable(detail, applied=applied if connection_lost(error) else "no")
