"""The kinds of store: memory, RocksDB, Redis, PostgreSQL, DynamoDB, partitioned, and those of plug-ins.

Each kind is a separate module or package, by its name in the configuration. A kind is imported when it is first used,
so that only the drivers in use must be installed. Plug-ins provide further kinds as entry points of the group
`tableside.stores`: the name is the kind, the object is the backend's class. Imports `core`.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from ..core import BackendType
from .partitioned import PartitionedBackend, PartitionedSettings, PartitionedStore

__all__ = ["PartitionedBackend", "PartitionedSettings", "PartitionedStore", "backend_type", "kinds"]

_KINDS = {
    "dynamodb": "dynamodb.backend:DynamodbBackend",
    "memory": "memory:MemoryBackend",
    "partitioned": "partitioned:PartitionedBackend",
    "postgres": "postgres.backend:PostgresBackend",
    "redis": "redis.backend:RedisBackend",
    "rocksdb": "rocksdb.backend:RocksdbBackend",
}


def kinds() -> list[str]:
    """Return the names of all kinds, sorted."""
    return sorted({*_KINDS, *_plug_ins()})


def backend_type(kind: str) -> BackendType:
    """Return the backend class of a kind. Raise KeyError for an unknown kind, ImportError if its driver is missing."""
    found: BackendType
    if kind in _KINDS:
        module, _, name = _KINDS[kind].partition(":")
        try:
            found = getattr(import_module(f".{module}", __package__), name)
        except ModuleNotFoundError as error:
            raise ImportError(f"stores of kind {kind} need: pip install 'tableside[{kind}]' ({error.name})") from error
        return found
    entry = _plug_ins()[kind]
    provided = f"stores of kind {kind} are provided by {entry.value}"
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        raise ImportError(f"{provided}, which cannot be imported: {error}") from error
    missing = [name for name in ("Settings", "TableOptions", "single_process", "open") if not hasattr(found, name)]
    if missing:
        raise ImportError(f"{provided}, which has no {', '.join(missing)}")
    return found


@cache
def _plug_ins() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group="tableside.stores")}
