"""Streams into a table without tokens are rejected with the reason, unless they accept duplicate writes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from servers.redis import redis
from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table, TableError

pytestmark = jvm("spark")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on a Redis whose eviction policy may remove tokens."""
    from redis import Redis

    directory = tmp_path_factory.mktemp("evicting")
    with redis(directory) as url:
        with Redis.from_url(url) as connection:
            connection.config_set("maxmemory-policy", "allkeys-lru")
        config = {"stores": {"redis": {"kind": "redis", "url": url}}, "tables": {"plain": {"store": "redis"}}}
        (directory / "tableside.yaml").write_text(json.dumps(config))
        with running(directory, directory / "tableside.yaml") as service:
            yield service


def test_it_is_rejected_without_at_least_once(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("\n".join(json.dumps({"k": "a"}) for _ in range(10)))
    table, stream = Table("plain", service.url), spark.readStream.schema("k string").json(str(tmp_path / "in"))
    counting = {"$inc": {"n": lit(1)}}
    with pytest.raises(ValueError, match="table plain keeps no tokens"):
        table.update(stream, "k", counting, default={})
    with pytest.raises(ValueError, match="table plain keeps no tokens"):
        table.put(stream, "k")

    def put(batch: DataFrame, number: int) -> None:
        table.put(batch, "k")

    writer = stream.writeStream.foreachBatch(put).option("checkpointLocation", str(tmp_path / "each"))
    with pytest.raises(StreamingQueryException, match="table plain keeps no tokens"):
        writer.trigger(availableNow=True).start().awaitTermination(120)
    writer = stream.writeStream.format("tableside").option("checkpointLocation", str(tmp_path / "format"))
    writer = writer.options(url=service.url, table="plain", key="k").trigger(availableNow=True)
    with pytest.raises(Exception, match="table plain keeps no tokens"):
        writer.start().awaitTermination(120)
    with Client(service.url) as client, pytest.raises(TableError, match="record_not_found"):
        client.table("plain").record("a")
    anyway = table.update(stream, "k", counting, default={}, at_least_once=True)
    anyway.start(str(tmp_path / "anyway"), availableNow=True).awaitTermination(120)
    with Client(service.url) as client:
        assert client.table("plain").record("a").value == {"n": 10}
