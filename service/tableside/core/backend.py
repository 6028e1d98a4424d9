"""What a kind of store implements: a class that opens a backend, and the backend that opens each table's store."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from pydantic import BaseModel

from .store import Store, TableSpec


class NoOptions(BaseModel, frozen=True, extra="forbid"):
    """The `TableOptions` of a kind of store whose tables have no options of their own."""


class Backend(Protocol):
    """What a `stores` entry of the configuration opens: one connection or database, shared by its tables' stores."""

    single_process: bool

    async def store(self, spec: TableSpec) -> Store:
        """Return the records of one table.

        Raise StoreUnavailable if the backend cannot be asked now, TableNotFound if it has no such table and may not
        make it, Unsupported if the table cannot be what `spec` asks for.
        """
        ...

    async def tables(self) -> list[str]:
        """Return the names of the tables that hold anything."""
        ...

    async def ping(self) -> None:
        """Return if the backend can be reached, raise StoreUnavailable if not."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of everything; a second call does nothing."""
        ...


class BackendType(Protocol):
    """The class of a kind of store: what it and its tables may be told, and how it is opened."""

    Settings: type[BaseModel]
    TableOptions: type[BaseModel]
    single_process: bool

    async def open(self, settings: Any) -> Backend:
        """Return a backend that can be used. Raise StoreUnavailable if there is none."""
        ...


class Connections(msgspec.Struct, frozen=True):
    """How many connections of a backend are in use (being made included), and open, and how many there may be."""

    in_use: int
    open: int
    most: int


@runtime_checkable
class ReportsConnections(Protocol):
    """A backend that tells of its connections; one that has none, or does not know, need not be one."""

    def connections(self) -> Connections:
        """Return how many there are now."""
        ...


def connections_of(backend: Backend) -> Connections | None:
    """Return what a backend tells of its connections, None where it tells nothing."""
    return backend.connections() if isinstance(backend, ReportsConnections) else None
