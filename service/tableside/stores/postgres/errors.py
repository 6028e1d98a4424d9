"""Translates errors of PostgreSQL and its driver. Details contain names and codes, never values.

SQLSTATE        meaning                                  translation
40001, 40P01    serialization failure, deadlock          retried, then Contended
22 23 44 54 P0  invalid data in the statement            InvalidOperation (54: TooLarge) for the operation at fault
42601, XX000    possibly invalid data in the statement   InvalidOperation if a column's type rejects its text
42501           permission denied                        Unsupported
42P01           undefined table                          TableNotFound
53300           too many connections                     Throttled
55P03           lock not available                       Contended
57014           statement cancelled by a server limit    StoreUnavailable
25006, 53100    read-only transaction, disk full         WritesRejected
0A000, others 42 the table's columns have changed        SchemaChanged, after which its definition is read again
26000, 42P05    a prepared statement is absent, exists   StoreMisconfigured (a pooler exchanges sessions)
others          shutdown, startup, …                     StoreUnavailable
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


DRIVER_ERRORS = (
    OSError,
    asyncio.IncompleteReadError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

_ROLLED_BACK = frozenset({"40001", "40P01"})
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


def is_rolled_back(error: BaseException) -> bool:
    """Return whether the server rolled back a transaction that may succeed when it is retried."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _ROLLED_BACK


def is_row_error(error: BaseException) -> bool:
    """Return whether the server rejected the data of some rows, so that the other rows may succeed without them."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_ROW_ERRORS)


def is_input_error(error: BaseException) -> bool:
    """Return whether the text of a column may be the cause of an error."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(("22", *_EXTENSION_ERRORS))


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection failed, so that a statement sent on it may or may not have been applied."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_CONNECTION_ERRORS)
    return True


def is_read_only_error(error: BaseException) -> bool:
    """Return whether the server accepts no writes. It has not applied the statement."""
    return isinstance(error, asyncpg.ReadOnlySQLTransactionError)


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
        return _refused_login(error, parameters)
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


def _refused_login(error: asyncpg.PostgresError, parameters: Collection[str]) -> TableError:
    named = [name for name in re.findall(r'"([^"]+)"', str(error)) if name in parameters]
    match error.sqlstate:
        case "28P01":
            return StoreMisconfigured("PostgreSQL rejects the user or the password of the DSN")
        case "28000":
            return StoreMisconfigured(
                "PostgreSQL does not let the DSN's user log in: the role does not exist or may not log in, or "
                "pg_hba.conf has no entry for this user, database, address and sslmode"
            )
        case "3D000" | "55000":
            return StoreMisconfigured("the database of the DSN does not exist, or accepts no connections")
        case "42501":
            return StoreMisconfigured("the DSN's user has no permission to connect to the database")
        case "22023" | "42602" | "42704" | "55P02" | "0A000" if named:
            return StoreMisconfigured(f"PostgreSQL does not accept a parameter of the DSN: {quoted_list(named)}")
    return translate_error(error, "", applied="no")


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
    code = error.sqlstate or ""
    match code:
        case "42501":
            return Unsupported(f"{prefix}PostgreSQL denies permission to this role")
        case "42P01" | "3F000":
            return TableNotFound(f"{prefix}PostgreSQL has no such table")
        case "53300":
            return Throttled(f"{prefix}PostgreSQL has too many connections")
        case "55P03":
            return Contended(f"{prefix}another transaction held the record's lock for longer than lock_timeout")
        case "25006":
            return WritesRejected(f"{prefix}PostgreSQL is read-only")
        case "53100":
            return WritesRejected(f"{prefix}the disk of PostgreSQL is full")
        case "57014":
            return StoreUnavailable(f"{prefix}PostgreSQL cancelled the statement")
        case _ if code == "0A000" or (code.startswith("42") and code != "42P05"):
            return SchemaChanged(
                f"{prefix}PostgreSQL rejects the statement (SQLSTATE {code}): the table's columns have changed, "
                "or its triggers or policies are not valid"
            )
        case "26000" | "42P05":
            return StoreMisconfigured(f"{prefix}{_POOLER}: the session changes between two statements")
        case "08P01":  # pgbouncer's code for all its errors
            for text, fault in _POOLER_FAULTS.items():
                if text in str(error):
                    return StoreMisconfigured(prefix + fault)
            return StoreUnavailable(f"{prefix}the pooler has no connection to PostgreSQL for this one", applied=applied)
        case "53200":
            return StoreUnavailable(f"{prefix}PostgreSQL is out of memory")
        case "57P01" | "57P02" | "57P03":
            return StoreUnavailable(f"{prefix}PostgreSQL is starting, recovering or shutting down", applied=applied)
        case "XX001" | "XX002":
            return StoreUnavailable(f"{prefix}PostgreSQL reports damaged data (SQLSTATE {code}): see its log")
    detail = f"{prefix}PostgreSQL cannot execute the statement now (SQLSTATE {code})"
    return StoreUnavailable(detail, applied=applied if is_connection_error(error) else "no")
