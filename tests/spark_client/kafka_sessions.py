"""The Spark that the test modules of a process share, with the connector to Kafka."""

from pyspark import SparkContext
from pyspark.sql import SparkSession

from servers.kafka import spark_kafka_jars
from spark_client.sessions import PYSPARK_VERSION, is_running, start, stop

ATTEMPTS = 2
"""The maximum number of attempts of a task."""

CONNECTOR_VERSION = (4, 2)
"""The oldest Spark that the connector works with."""

_shared: SparkSession | None = None
_gateway: object = None


def shared_session() -> SparkSession:
    """Return a session with separate configuration and temporary views, in the shared Spark.

    Starts Spark if it does not run. Its JVM starts with Spark's connector to Kafka, as in a program that
    configures it before the start. A JVM of earlier sessions lacks the connector, so it is ended first.
    """
    global _shared, _gateway
    if _shared is None or not is_running(_shared):
        if SparkContext._gateway is None or SparkContext._gateway is not _gateway:
            end_jvm()
        stop()
        jars = spark_kafka_jars() if PYSPARK_VERSION >= CONNECTOR_VERSION else []
        _shared = start(f"local[2,{ATTEMPTS}]", {"spark.jars": ",".join(map(str, jars))})
        _gateway = SparkContext._gateway
    return _shared.newSession()


def end_jvm() -> None:
    """End the JVM of this process and its Spark. The next session starts a new one."""
    stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input closes
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
