"""The Spark that modules of a process share, which can read from Kafka and write to it."""

from pyspark import SparkContext
from pyspark.sql import SparkSession

from servers.spark_kafka import spark_kafka_jars
from spark_client.sessions import is_running, start, stop

ATTEMPTS = 2
"""How often a task is tried."""

_shared: SparkSession | None = None
_gateway: object = None


def shared_session() -> SparkSession:
    """A session with a configuration and temporary views of its own, in the Spark that is shared.

    Spark is started where it does not run. Its JVM is started with Spark's connector to Kafka, as a program's is that
    names it when it starts; a JVM that sessions before have left does not know the connector, and is ended.
    """
    global _shared, _gateway
    if _shared is None or not is_running(_shared):
        if SparkContext._gateway is None or SparkContext._gateway is not _gateway:
            end_jvm()
        stop()
        _shared = start(f"local[2,{ATTEMPTS}]", {"spark.jars": ",".join(map(str, spark_kafka_jars()))})
        _gateway = SparkContext._gateway
    return _shared.newSession()


def end_jvm() -> None:
    """End the JVM of this process, and the Spark that runs in it; the next session starts one."""
    stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # which is what it ends upon
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
