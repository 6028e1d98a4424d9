"""The kinds of store, by the word that the configuration uses for them.

A kind is imported when it is first used, so that what it needs is needed only then.
"""

from importlib import import_module
from typing import Any, Protocol

from pydantic import BaseModel

from ..store import Backend

_KINDS = {
    "memory": "memory:MemoryBackend",
    "rocksdb": "rocksdb:RocksdbBackend",
}


class BackendType(Protocol):
    """The class of a kind of store: what it may be told, and how it is opened."""

    Settings: type[BaseModel]
    single_process: bool

    async def open(self, settings: Any) -> Backend:
        """Return a backend that can be used. Raise StoreUnavailable if there is none."""
        ...


def kinds() -> list[str]:
    """Return the words for the kinds of store."""
    return sorted(_KINDS)


def backend_type(kind: str) -> BackendType:
    """Return the class of a kind. Raise KeyError if there is none, ImportError if what it needs is not installed."""
    module, _, name = _KINDS[kind].partition(":")
    try:
        found: BackendType = getattr(import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"stores of kind {kind} need: pip install 'tableside[{kind}]' ({error.name})") from error
    return found
