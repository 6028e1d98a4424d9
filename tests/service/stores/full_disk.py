"""Fill a small file system with records in RocksDB, make room again, and print the outcomes as JSON.

Run it in a separate mount namespace, with the path of an empty folder.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from contract import one, put, scanned
from tableside.core.errors import StoreUnavailable, TableError
from tableside.core.operations import Get, Outcome, Record
from tableside.core.store import TableSpec
from tableside.stores.rocksdb import RocksdbBackend, RocksdbSettings, database

SIZE_MB = 64
FILLER_BYTES = 56 * 2**20
WRITE_BUFFER_BYTES = 16 * 2**20
"""More than the room that the filler leaves, so that the write-ahead log fills the disk."""


async def fill(folder: Path) -> dict[str, object]:
    backend = await RocksdbBackend.open(
        RocksdbSettings(path=str(folder / "data"), write_buffer_bytes=WRITE_BUFFER_BYTES)
    )
    store = await backend.store(TableSpec("t"))
    filler = folder / "filler"
    filler.write_bytes(b"x" * FILLER_BYTES)
    acknowledged: list[str] = []
    refused = None
    while refused is None and len(acknowledged) < 10_000:
        key = f"{len(acknowledged):05}"
        outcome = await one(store, put(key, {"long": f"{key}-" * 3000}))
        refused = outcome if isinstance(outcome, TableError) else None
        acknowledged.append(key)
    unsure = acknowledged.pop()
    found: dict[str, object] = {
        "refused": described(refused),
        "again": described(await one(store, put("again"))),
        "while full": isinstance(await one(store, Get(acknowledged[0])), Record),
        "ping while full": await ping(backend),
    }
    filler.unlink()
    found["after"] = described(await one(store, put("after")))
    found["ping after"] = await ping(backend)
    kept = set(await scanned(store, limit=1000))
    found["lost"] = sorted({*acknowledged, "after"} - kept)
    found["unexpected"] = sorted(str(key) for key in kept - {*acknowledged, "after", unsure, "again"})
    await backend.close()
    return found


def described(outcome: Outcome) -> object:
    return [type(outcome).__name__, getattr(outcome, "detail", None), getattr(outcome, "applied", None)]


async def ping(backend: RocksdbBackend) -> str | None:
    try:
        await backend.ping()
    except StoreUnavailable as error:
        return error.detail
    return None


def main(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder)], check=True)
    database.REOPEN_EVERY_S = 0.0
    print(json.dumps(asyncio.run(fill(folder))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
