"""Spark's connector to Kafka, which PySpark comes without. Knows neither Spark nor a broker."""

from pathlib import Path

from .maven import ensure_jars


def spark_kafka_jars() -> list[Path]:
    """Return the jars that a session is given as `spark.jars`; none of them is among PySpark's own."""
    return sorted(ensure_jars("spark-kafka").glob("*.jar"))
