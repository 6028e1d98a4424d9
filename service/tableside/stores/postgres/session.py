"""Sessions of the server: the parameters that statements rely on, also if a pooler shares sessions between clients.

A pooler such as pgbouncer in transaction mode may use another session of the server for each transaction of a client.
Parameters and prepared statements of one transaction are then missing in the next one, or belong to another client.
Behind a pooler, every use of a connection is therefore one transaction that sets the parameters for itself, and
statements have no name. A direct connection sets the parameters once.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg

from .errors import is_connection_error

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

STATEMENTS_MAX = 100
"""How many prepared statements a direct connection keeps."""

_PARAMETERS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "jit": "off",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "bytea_output": "hex",
}
_CLIENT_CHECK = {"client_connection_check_interval": "1s"}
"""Ends statements whose client has disconnected, so that they release their locks. Requires PostgreSQL 14."""


class Connection(asyncpg.Connection):
    """A connection to a server, or to a pooler if `is_pooled`.

    The names of its prepared statements are unique: in a session that a pooler shares, a name never has the statement
    of another process.
    """

    is_pooled = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.opened_at = time.monotonic()
        self._role_at_opening = self._role()

    @property
    def was_read_only(self) -> bool:
        """Whether the server reported that it accepts no writes, when the connection was opened."""
        return "on" in self._role_at_opening

    @property
    def has_changed_role(self) -> bool:
        """Whether the server reports another role than at the opening: it was promoted, or is read-only now."""
        return self._role() != self._role_at_opening

    def _role(self) -> tuple[str | None, str | None]:
        """Return what PostgreSQL 14 and later report without a request, with the answer to any statement."""
        settings = self.get_settings()
        return getattr(settings, "in_hot_standby", None), getattr(settings, "default_transaction_read_only", None)

    def _get_unique_id(self, prefix: str) -> str:
        return f"tableside_{prefix}_{uuid4().hex}"


async def configure(connection: Connection) -> bool:
    """Set the parameters of a new direct connection. Return False, without an effect, if it leads to a pooler.

    A pooler does not report the process of its session as its own: it uses several, one after the other.
    """
    is_own = f"pg_backend_pid() = {connection.get_server_pid()}"
    isolation = {"default_transaction_isolation": "read committed"}
    parameters = {**_parameters(connection), **isolation}
    return await connection.execute(f"{_set(parameters, local=False)} WHERE {is_own}") == "SELECT 1"


@asynccontextmanager
async def one_session(connection: Connection) -> AsyncIterator[None]:
    """Execute the statements of a block in one session that has the parameters.

    Behind a pooler, commit at the end, unless the block itself has ended the transaction. Roll back if the server
    rejects a statement.
    """
    if not connection.is_pooled:
        yield
        return
    await connection.execute(f"{BEGIN}; {_set(_parameters(connection), local=True)}")
    try:
        yield
    except asyncpg.PostgresError as error:
        if connection.is_in_transaction() and not is_connection_error(error):
            await connection.execute("ROLLBACK")
        raise
    if connection.is_in_transaction():
        await connection.execute("COMMIT")


def _parameters(connection: Connection) -> dict[str, str]:
    return {**_PARAMETERS, **(_CLIENT_CHECK if connection.get_server_version() >= (14,) else {})}


def _set(parameters: dict[str, str], *, local: bool) -> str:
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', {local})" for name, value in parameters.items())
