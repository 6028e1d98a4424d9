"""Translates errors of PostgreSQL and its driver. Details contain names and codes, never values.

Some errors are not translated immediately. A serialization failure or a deadlock (40001, 40P01) is retried, then
Contended. Invalid data in a statement (22, 23, 44, 54, P0) is InvalidOperation or TooLarge for the operation at fault,
and so is 42601 or XX000 if a column's type rejects its text. After 0A000 and most errors of class 42, the definition of
the table is read again.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Collection

import asyncpg

from ...core import (
    Applied,
    Contended,
    InvalidOperation,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Throttled,
    TooLarge,
    Unsupported,
    WritesRejected,
    quoted_list,
)


class SchemaChanged(Unsupported):
    """A statement does not fit the table, which was applied to nothing."""


class ColumnMismatch(InvalidOperation):
    """A value does not fit the table's columns as they were when the table was last opened. It was not sent."""


DRIVER_ERRORS = (
    OSError,
    asyncio.IncompleteReadError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

_EXTENSION_ERRORS = ("42601", "XX000")
"""Also raised by the types of extensions, such as `ltree`, if they reject a text."""

_ROW_ERRORS = ("22", "23", "44", "54", "P0")
_CONNECTION_ERRORS = ("08", "57P")
_POOLER = "use PostgreSQL directly, or a pooler in session or transaction mode"
_POOLER_FAULTS = {
    "authentication failed": "the pooler rejects the user or the password of the DSN",
    "no such user": "the pooler rejects the user or the password of the DSN",
    "no such database": "the pooler has no database of the DSN's name",
    "does not exist": "the database of the DSN does not exist",
    "unsupported startup parameter": "the pooler does not accept a parameter of the DSN (ignore_startup_parameters)",
    "statement pooling mode": f"{_POOLER}: pgbouncer is in statement mode",
}
"""What is wrong if an error of a pooler contains a text."""

_REFUSED_PARAMETERS = {"22023", "42602", "42704", "55P02", "0A000"}
_REFUSED_LOGINS = {
    "28P01": "PostgreSQL rejects the user or the password of the DSN",
    "28000": "PostgreSQL does not let the DSN's user log in: the role does not exist or may not log in, or "
    "pg_hba.conf has no entry for this user, database, address and sslmode",
    **dict.fromkeys(("3D000", "55000"), "the database of the DSN does not exist, or accepts no connections"),
    "42501": "the DSN's user has no permission to connect to the database",
}
_FAULTS: dict[str, tuple[type[TableError], str]] = {
    "25006": (WritesRejected, "PostgreSQL is read-only"),
    "2BP01": (Unsupported, "another object of the database, such as a view, needs the table"),
    "42501": (Unsupported, "PostgreSQL denies permission to this role"),
    "53100": (WritesRejected, "the disk of PostgreSQL is full"),
    "53200": (StoreUnavailable, "PostgreSQL is out of memory"),
    "53300": (Throttled, "PostgreSQL has too many connections"),
    "55P03": (Contended, "another transaction held the record's lock for longer than lock_timeout"),
    "57014": (StoreUnavailable, "PostgreSQL cancelled the statement"),
    **dict.fromkeys(("3F000", "42P01"), (TableNotFound, "PostgreSQL has no such table")),
    **dict.fromkeys(("26000", "42P05"), (StoreMisconfigured, f"{_POOLER}: the session changes between two statements")),
    **dict.fromkeys(
        ("57P01", "57P02", "57P03"), (StoreUnavailable, "PostgreSQL is starting, recovering or shutting down")
    ),
}
"""The kind and the reason of errors, by their SQLSTATE."""


def is_row_error(error: BaseException) -> bool:
    """Return whether the server rejected the data of some rows, so that the other rows may succeed without them."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_ROW_ERRORS)


def is_input_error(error: BaseException) -> bool:
    """Return whether the text of a column may be the cause of an error."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(("22", *_EXTENSION_ERRORS))


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection failed, so that a statement sent on it may or may not have been applied."""
    return not isinstance(error, asyncpg.PostgresError) or (error.sqlstate or "").startswith(_CONNECTION_ERRORS)


def rejected_row_error(error: asyncpg.PostgresError, table: str) -> TableError:
    """Return the outcome of a write whose row the server rejected."""
    code = error.sqlstate or ""
    if code in _EXTENSION_ERRORS:
        return translate_error(error, table, applied="no")
    constraint, column = getattr(error, "constraint_name", None), getattr(error, "column_name", None)
    if code.startswith("54"):
        return TooLarge("a key, row or value exceeds a limit of PostgreSQL")
    if code == "23502" and column:
        return InvalidOperation(f"column {column!r} may not be null")
    if constraint:
        return InvalidOperation(f"the write violates constraint {constraint!r} of the table")
    if code.startswith("P0"):
        return InvalidOperation("a trigger or function of the table rejects the write")
    return InvalidOperation(f"PostgreSQL rejects the write (SQLSTATE {code})")


def connection_fault(error: BaseException, parameters: Collection[str]) -> TableError:
    """Return the reason why a connection cannot be opened. `parameters` are the names of the DSN's parameters."""
    if isinstance(error, asyncpg.PostgresError):
        if reason := _REFUSED_LOGINS.get(error.sqlstate or ""):
            return StoreMisconfigured(reason)
        named = [name for name in re.findall(r'"([^"]+)"', str(error)) if name in parameters]
        if named and error.sqlstate in _REFUSED_PARAMETERS:
            return StoreMisconfigured(f"PostgreSQL does not accept a parameter of the DSN: {quoted_list(named)}")
        return translate_error(error, "", applied="no")
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreMisconfigured(f"PostgreSQL's TLS certificate is not valid: {error.verify_message}")
    if isinstance(error, ssl.SSLError) and error.reason and not isinstance(error, ssl.SSLEOFError):
        return StoreMisconfigured(f"PostgreSQL and the DSN's TLS settings do not match ({error.reason})")
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return StoreMisconfigured("PostgreSQL offers no TLS, which the DSN's sslmode requires")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreUnavailable("no server of the DSN has the role that its target_session_attrs requires")
    if isinstance(error, socket.gaierror):
        return StoreUnavailable("the name of PostgreSQL's host cannot be resolved")
    if isinstance(error, asyncpg.ClientConfigurationError):
        return StoreMisconfigured("the driver does not accept the DSN, or PostgreSQL's environment variables")
    if isinstance(error, asyncpg.InterfaceError) and "authentication" in str(error):
        return StoreMisconfigured("PostgreSQL requires a kind of authentication that the driver does not have")
    return StoreUnavailable(f"the connection to PostgreSQL failed ({type(error).__name__})")


def translate_error(error: BaseException, table: str, *, applied: Applied) -> TableError:
    """Return the outcome of every operation of a failed statement.

    `applied` describes a write that was sent without a response. If the server responds with an error, it has rolled
    the write back.
    """
    prefix = f"table {table!r}: " if table else ""
    if applied == "no" and isinstance(error.__cause__, asyncpg.PostgresError):
        error = error.__cause__  # the reason why the server closed the connection
    if not isinstance(error, asyncpg.PostgresError):
        detail = f"{prefix}the connection to PostgreSQL failed ({type(error).__name__})"
        return StoreUnavailable(detail, applied=applied)
    kind, reason = _fault(error.sqlstate or "", str(error))
    may_be_applied = kind is StoreUnavailable and is_connection_error(error)
    return kind(f"{prefix}{reason}", applied=applied if may_be_applied else "no")


def _fault(code: str, message: str) -> tuple[type[TableError], str]:
    if code in _FAULTS:
        return _FAULTS[code]
    if code == "08P01":  # pgbouncer's code for all its errors
        for text, fault in _POOLER_FAULTS.items():
            if text in message:
                return StoreMisconfigured, fault
        return StoreUnavailable, "the pooler has no connection to PostgreSQL for this one"
    if code.startswith(("0A000", "42")):
        return SchemaChanged, (
            f"PostgreSQL rejects the statement (SQLSTATE {code}): the table's columns have changed, "
            "or its triggers or policies are not valid"
        )
    if code in ("XX001", "XX002"):
        return StoreUnavailable, f"PostgreSQL reports damaged data (SQLSTATE {code}): see its log"
    return StoreUnavailable, f"PostgreSQL cannot execute the statement now (SQLSTATE {code})"
