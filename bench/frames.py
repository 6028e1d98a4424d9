"""`enrich` of a frame against `get_many` in a loop, and against MGET of redis-py with JSON and a join by hand.

200,000 rows with 20,000 distinct keys get one member of their records, on the same Redis server.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import redis

from servers.redis import redis as redis_server
from tableside_client import Client, Table

from . import records
from .report import Result
from .services import serving
from .turns import Comparison, measured

ROWS = 200_000
KEYS = 20_000
LOOP = 1_000
"""The number of rows of each call of `get_many`, and of keys of each MGET."""


def run(rounds: int = 3) -> list[Result]:
    """Measure all ways in turn over several rounds, and return the medians in rows per second."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as url:
        store = {"kind": "redis", "url": url}
        with (
            serving(Path(name) / "service", store, {records.TABLE: {}}) as service,
            Client(service.url) as client,
            redis.Redis.from_url(url) as direct,
        ):
            ways = {way: partial(_rate, enrich) for way, enrich in _ways(client.table(records.TABLE), direct).items()}
            title = f"Frames, Redis, {ROWS:,} rows, {KEYS:,} keys"
            return measured([Comparison(title, "rows", ways, {"enrich, pandas": 0.8})], rounds)


def _ways(table: Table[dict[str, object]], direct: "redis.Redis") -> dict[str, Callable[[], object]]:
    """Write the records, and return the ways to add a member to a frame."""
    values = {f"N{number:06}": {"manufacturer": "BOEING", "seats": number} for number in range(KEYS)}
    table.load(values.items())
    direct.mset({f"direct:{key}": json.dumps(value) for key, value in values.items()})
    keys = random.Random(1).choices(list(values), k=ROWS)
    arrow = pa.table({"tailnum": keys, "number": range(ROWS)})
    frame, polars_frame = pd.DataFrame({"tailnum": keys, "number": range(ROWS)}), pl.from_arrow(arrow)

    def by_hand() -> pd.DataFrame:
        distinct = list(dict.fromkeys(frame["tailnum"]))
        seats: dict[str, int | None] = {}
        for start in range(0, len(distinct), LOOP):
            chunk = distinct[start : start + LOOP]
            for key, text in zip(chunk, direct.mget([f"direct:{key}" for key in chunk]), strict=True):
                seats[key] = None if text is None else json.loads(text).get("seats")
        return frame.assign(seats=frame["tailnum"].map(seats))

    def get_many() -> pd.DataFrame:
        seats: list[object] = []
        for start in range(0, ROWS, LOOP):
            chunk = keys[start : start + LOOP]
            found = table.get_many(chunk)
            seats += [found[key].get("seats") if key in found else None for key in chunk]
        return frame.assign(seats=seats)

    return {
        "redis-py, MGET, JSON and a join by hand": by_hand,
        "get_many in a loop": get_many,
        "enrich, pandas": lambda: table.enrich(frame, "tailnum", columns=["seats"]),
        "enrich, pandas, with a schema": lambda: table.enrich(frame, "tailnum", schema={"seats": "int64"}),
        "enrich, Polars": lambda: table.enrich(polars_frame, "tailnum", columns=["seats"]),
        "enrich, pyarrow": lambda: table.enrich(arrow, "tailnum", columns=["seats"]),
    }


def _rate(enrich: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    enrich()
    return ROWS / (time.perf_counter() - started_s)
