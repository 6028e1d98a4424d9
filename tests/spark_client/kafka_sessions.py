"""Spark sessions that can read from Kafka and write to it."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from servers.spark_kafka import spark_kafka_jars
from spark_client.sessions import session


@contextmanager
def kafka_session(master: str) -> Iterator[SparkSession]:
    """A session whose JVM was started with Spark's connector to Kafka, as a program's is that names it when it starts.

    A JVM that sessions before have left in this process does not know the connector, and is ended.
    """
    end_jvm()
    with session(master, {"spark.jars": ",".join(map(str, spark_kafka_jars()))}) as started:
        yield started


def end_jvm() -> None:
    """End the JVM that stopped sessions of this process have left; the next session starts one."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # which is what it ends upon
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
