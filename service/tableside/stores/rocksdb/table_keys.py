"""The types of each table's key, which the database stores: with other types, encoded keys would be other keys.

The entries of tables come before all records in the database, because the name of a table is not empty.
"""

import logging
from functools import partial

from rocksdict import WriteBatch

from ...core import InvalidOperation, Outcome, TableSpec
from .database import FIRST_RECORD, Database
from .group_commit import Turn

log = logging.getLogger(__name__)

_PREFIX = b"\0key\0"
assert _PREFIX < FIRST_RECORD


async def check_key(database: Database, spec: TableSpec) -> None:
    """Raise InvalidOperation if the table has records whose keys have other types. Store the types if they are new."""
    name = spec.name_in_store.encode()
    types = ", ".join(field.type for field in spec.key.fields)
    stored = await database.run_read(partial(_stored_types, database, name))
    if stored == types:
        return
    if stored is not None and await database.run_read(partial(_has_records, database, name)):
        raise InvalidOperation(
            f"table {spec.name_in_store!r} has the key {{{stored}}} in RocksDB, which differs from the configuration"
        )
    try:
        await database.run_write(partial(_store_types, database, name, types))
    except Exception:  # The disk may be full. The table can still be read.
        log.exception("RocksDB could not store the types of the key of table %r", spec.name_in_store)


def _stored_types(database: Database, name: bytes) -> str | None:
    [types] = database.get([_PREFIX + name])
    return None if types is None else types.decode()


def _has_records(database: Database, name: bytes) -> bool:
    prefix = name + b"\0"
    first = database.search().first(prefix)
    return first is not None and first.startswith(prefix)


def _store_types(database: Database, name: bytes, types: str, turn: Turn) -> list[Outcome]:
    batch = WriteBatch(raw_mode=True)
    batch.put(_PREFIX + name, types.encode())
    turn.spend(batch.size_in_bytes())
    database.write(batch)
    return []
