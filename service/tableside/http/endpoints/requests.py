"""The request that an endpoint receives: its headers, its body, and access to the service's tables."""

import asyncio
import math
import re
import time
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from ...auth import Caller
from ...catalog import Catalog, Table
from ...core import Budget, DeadlineExceeded, TableSpec, TooLarge, ValueRoom
from ...settings import LimitSettings
from ..request_context import SCOPE_KEY, RequestContext
from ..wire.members import MEMBERS
from ..wire.problems import UnsupportedMediaType
from ..wire.request_headers import Preferences, parse_preferences

SHORT_BODY_BYTES_MAX = 2**16
"""The maximum size of a body with one operation that the event loop decodes itself. A thread decodes longer ones."""

_REFUSED = {name: (one.name, one.refuse) for one in MEMBERS if one.refuse for name in one.parameters}
_BODY_CODINGS = frozenset({"content-encoding", "transfer-encoding"})


Found = TypeVar("Found")


class ServiceRequest(Request):
    """A request with access to the open tables and the limits of the service.

    `received_at` is the time of `time.monotonic` at which the body was complete, where deadlines begin. `body_bytes` is
    the size of the body in memory.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.catalog: Catalog = scope["app"].state.catalog
        self.context: RequestContext = scope[SCOPE_KEY]
        self.received_at, self.body_bytes = time.monotonic(), 0
        self._by_name: dict[str, str] | None = None

    @property
    def caller(self) -> Caller:
        """The authenticated caller."""
        return self.context.permissions

    @property
    def limits(self) -> LimitSettings:
        """The limits in the current settings."""
        limits: LimitSettings = self.app.state.settings.limits
        return limits

    def header(self, name: str) -> str | None:
        """Return a header by its name in lower case, repeated headers joined by commas, or None if it is absent."""
        if self._by_name is None:  # Starlette iterates over all headers at each look-up. This iterates once.
            self._by_name = {}
            for raw_name, raw in self.scope["headers"]:
                one, text = raw_name.decode("latin-1"), raw.decode("latin-1")
                self._by_name[one] = f"{self._by_name[one]}, {text}" if one in self._by_name else text
        return self._by_name.get(name)

    def refused(self, *when: str) -> tuple[str, str] | None:
        """Return a header that the request has although it is refused, and the member that it would give."""
        for header, (name, refuse) in _REFUSED.items():
            if refuse in when and self.header(header.lower()) is not None:
                return header, name
        return None

    def media_type(self, known: Collection[str], default: str | None = None) -> str:
        """Return the media type of the body, one of `known`. Raise UnsupportedMediaType if it is another."""
        given = self.header("content-type") or default or ""
        assert self._by_name is not None
        if _BODY_CODINGS.isdisjoint(self._by_name) and given in known:
            return given
        if (self.header("content-encoding") or "identity").lower() != "identity":
            raise UnsupportedMediaType("a body with a Content-Encoding is not supported")
        if (self.header("transfer-encoding") or "chunked").lower() != "chunked":
            raise UnsupportedMediaType("chunked is the only supported transfer coding")
        essence, _, parameters = given.partition(";")
        charset = parameters and re.search(r"charset\s*=\s*\"?([^\s\";]+)", parameters, re.IGNORECASE)
        if essence.strip().lower() not in known or (
            charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii")
        ):
            raise UnsupportedMediaType(f"the body must be one of: {', '.join(sorted(known))}")
        return essence.strip().lower()

    async def read_body(self) -> bytes:
        """Read the whole body, and note when it was received. Raise TooLarge if it exceeds `body_bytes_max`."""
        bytes_max = self.limits.body_bytes_max
        declared = self.header("content-length")
        if declared is not None and int(declared) > bytes_max:
            raise TooLarge(f"a body may have at most {bytes_max} bytes")
        chunks, size_bytes, more = [], 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise TooLarge(f"a body may have at most {bytes_max} bytes")
            chunks.append(chunk)
        self.received_at, self.body_bytes = time.monotonic(), size_bytes
        return b"".join(chunks)


class TableRequest(ServiceRequest):
    """A request for a table, `table_name`."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.table_name: str = self.context.path[0]
        self.context.table = self.table_name
        # A path with a key is one operation. A batch counts its own.
        self.context.operations = len(self.context.path) - 1

    async def read_body(self) -> bytes:
        """Read the whole body. Raise Overloaded, without reading it, if the table's store takes no operation now."""
        self.catalog.check_admission(self.table_name)
        return await super().read_body()

    def budget(self, table: Table | TableSpec, prefer: Preferences | None, room: ValueRoom | None = None) -> Budget:
        """Return what the request may use. The deadline of a table that does not exist yet is unknown."""
        own_s = math.inf if isinstance(table, TableSpec) else table.deadline_s
        allowed_s = own_s if prefer is None or prefer.wait_s is None else min(prefer.wait_s, own_s)
        until, caller = self.received_at + allowed_s, self.context.caller or ""
        return Budget(until, self.table_name, caller, self.body_bytes, room)

    async def within(self, prefer: Preferences | None, lookup: Coroutine[Any, Any, Found]) -> Found:
        """Return the result of a lookup in the catalog. Raise DeadlineExceeded if the client does not wait for it.

        The table's own deadline limits every lookup.
        """
        if prefer is None or prefer.wait_s is None:
            return await lookup
        try:
            async with asyncio.timeout_at(self.received_at + prefer.wait_s):
                return await lookup
        except TimeoutError:
            raise DeadlineExceeded("the store of the table did not answer before the request's deadline") from None

    def reserve(self, body_bytes: int) -> None:
        """Count a body with so many bytes once it is decompressed. Raise Overloaded above the limit."""
        assert self.context.reservation is not None
        self.context.reservation.grow_body_to(body_bytes)
        self.body_bytes = max(self.body_bytes, body_bytes)


# Checks of permissions, which endpoints declare as their dependencies. A service without authentication skips them.


def check_any(request: TableRequest) -> None:
    """Raise Forbidden if the caller has no permission on the table."""
    request.caller.check_any(request.table_name)


def check_read(request: TableRequest) -> None:
    """Raise Forbidden if the caller may not read the table."""
    request.caller.check("read", request.table_name)


def check_write(request: TableRequest) -> None:
    """Raise Forbidden if the caller may not write the table, or not read it, and requests the value after a write."""
    request.caller.check("write", request.table_name)
    prefer = None if request.method == "DELETE" else request.header("prefer")
    if prefer is not None and parse_preferences(prefer).representation:
        check_read(request)
