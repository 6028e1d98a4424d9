"""The records that the benchmarks read and write: about 100 bytes each, with keys of 7 characters."""

import random
from functools import cache
from typing import Any

import orjson

TABLE = "bench"


def key(index: int) -> str:
    """Return the key of a record."""
    return f"N{index:06d}"


@cache
def value(index: int, size: int = 0) -> bytes:
    """Return the value of a record as JSON text, filled up to `size` bytes with digits that do not compress well."""
    seats, year = index % 300, 1970 + index % 50
    document: dict[str, Any] = {
        "manufacturer": "BOEING",
        "model": f"737-{index}",
        "seats": seats,
        "speed": 12.5,
        "year": year,
        "type": "Fixed wing multi engine",
    }
    missing = size - len(orjson.dumps({**document, "remark": ""}))
    if missing > 0:
        document["remark"] = random.Random(index).randbytes(missing).hex()[:missing]
    return orjson.dumps(document)
