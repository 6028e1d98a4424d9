"""Variants of applying the updates of a micro-batch: through the service, and with redis-py alone.

All variants run as Arrow functions on the executors, although users may prefer the slower `foreachPartition`, because
only the writing is compared. The redis-py variants are atomic for each row, so no first update is lost. However, rows
that are sent again, for example after a failed task, count again. With `Table` they do not.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import redis
from pyspark.sql import DataFrame, functions as f
from pyspark.sql.functions import col, lit

from tableside_client import Client
from tableside_client.chunks import chunks
from tableside_spark import ChunkSize, Table

from .flight_updates import DEFAULT, KEY

Write: TypeAlias = Callable[[DataFrame, str, int], None]
"""Applies the updates of a frame to a table. The number counts micro-batches."""

Batches: TypeAlias = Iterator[pa.RecordBatch]
Row: TypeAlias = tuple[str, int, int, int]
"""Key, number of flights, miles, last arrival."""

PIPELINED_MAX = 1_000
"""The number of updates that redis-py sends before it reads the replies."""

SCRIPT = """
local text = redis.call('GET', KEYS[1])
local value = text and cjson.decode(text) or {flights = 0, miles = 0}
local arrived = tonumber(ARGV[3])
value.flights, value.miles = value.flights + ARGV[1], value.miles + ARGV[2]
if not value.arrived or value.arrived < arrived then value.arrived = arrived end
redis.call('SET', KEYS[1], cjson.encode(value))
"""


def with_table(url: str, *, fold: bool) -> Write:
    """`Table.update`: one operation for each key, under a token as in a streaming query."""

    def write(frame: DataFrame, table: str, micro_batch: int) -> None:
        Table(table, url=url).update(
            frame,
            key=KEY,
            update={"$inc": {"flights": lit(1), "miles": col("distance")}, "$max": {"arrived": col("arrived")}},
            default={name: lit(number) for name, number in DEFAULT.items()},
            fold=fold,
            token=(table, micro_batch),
        )

    return write


def with_client(url: str) -> Write:
    """`ArrowTable.batch`: one operation for each row, without a token."""

    def write(frame: DataFrame, table: str, micro_batch: int) -> None:
        added = f.struct(lit(1).alias("flights"), col("distance").alias("miles"))
        update = f.to_json(f.struct(added.alias("$inc"), f.struct("arrived").alias("$max")))
        default = lit(json.dumps(DEFAULT))
        operations = frame.select(col(KEY).alias("key"), update.alias("update"), default.alias("default"))
        _run(operations, partial(_send, url, table))

    return write


def row_by_row(url: str) -> Write:
    """redis-py, one call of a script for each row."""
    return lambda frame, table, micro_batch: _run(_rows(frame), partial(_call_script, url, table))


def watched(url: str) -> Write:
    """redis-py, for each row WATCH, GET, and SET in a transaction, with retries after a conflict."""
    return lambda frame, table, micro_batch: _run(_rows(frame), partial(_watch, url, table))


def pipelined(url: str) -> Write:
    """redis-py, one call of the same script for each row, in pipelines of 1,000 calls."""
    return lambda frame, table, micro_batch: _run(_rows(frame), partial(_pipeline, url, table))


def aggregated(url: str) -> Write:
    """The same with one row per key, from a hand-written aggregation of these updates."""

    def write(frame: DataFrame, table: str, micro_batch: int) -> None:
        sums = (f.sum(name).alias(name) for name in ("flights", "miles"))
        rows = _rows(frame).groupBy(KEY).agg(*sums, f.max("arrived").alias("arrived"))
        _run(rows, partial(_pipeline, url, table))

    return write


def nowhere() -> Write:
    """Pass the rows to Python and discard them."""
    return lambda frame, table, micro_batch: _run(_rows(frame), _count)


def _rows(frame: DataFrame) -> DataFrame:
    return frame.select(KEY, lit(1).cast("long").alias("flights"), col("distance").alias("miles"), "arrived")


def _run(rows: DataFrame, write: Callable[[Batches], Iterator[int]]) -> None:
    def counted(batches: Batches) -> Batches:
        for count in write(batches):
            yield pa.record_batch({"count": pa.array([count], pa.int64())})

    rows.mapInArrow(counted, "count long").collect()


def _count(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield batch.num_rows


def _send(url: str, table: str, batches: Batches) -> Iterator[int]:
    with Client(url) as client:
        for chunk in chunks(batches, ChunkSize()):
            answer = client.arrow_table(table).batch(chunk, op="update")
            failed = answer.filter(answer["code"].is_valid())
            if len(failed):
                raise RuntimeError(f"{len(failed)} of {len(answer)} operations failed: {failed['code'][0]}")
            yield len(answer)


def _call_script(url: str, table: str, batches: Batches) -> Iterator[int]:
    with closing(redis.Redis.from_url(url)) as client:
        sha = client.script_load(SCRIPT)
        for batch in batches:
            for key, *added in _tuples(batch):
                client.evalsha(sha, 1, f"{table}:{key}", *added)
            yield batch.num_rows


def _watch(url: str, table: str, batches: Batches) -> Iterator[int]:
    with closing(redis.Redis.from_url(url)) as client:
        for batch in batches:
            for row in _tuples(batch):
                name = f"{table}:{row[0]}"
                client.transaction(partial(_replace, name, row), name)
            yield batch.num_rows


def _replace(name: str, row: Row, pipeline: Any) -> None:
    text = pipeline.get(name)
    value = json.loads(text) if text else dict(DEFAULT)
    _, flights, miles, arrived = row
    value["flights"] += flights
    value["miles"] += miles
    value["arrived"] = max(value.get("arrived", arrived), arrived)
    pipeline.multi()
    pipeline.set(name, json.dumps(value))


def _pipeline(url: str, table: str, batches: Batches) -> Iterator[int]:
    with closing(redis.Redis.from_url(url)) as client:
        sha = client.script_load(SCRIPT)
        for chunk in chunks(batches, ChunkSize(rows_max=PIPELINED_MAX)):
            with client.pipeline(transaction=False) as pipeline:
                for key, *added in _tuples(chunk):
                    pipeline.evalsha(sha, 1, f"{table}:{key}", *added)
                pipeline.execute()
            yield chunk.num_rows


def _tuples(batch: pa.RecordBatch) -> Sequence[Row]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
