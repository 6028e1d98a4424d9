"""Spark's connector to Kafka, which PySpark does not include."""

from pathlib import Path

from .maven import ensure_jars


def spark_kafka_jars() -> list[Path]:
    """Return the jars for a session's `spark.jars`. None of them duplicates one of PySpark's jars."""
    return sorted(ensure_jars("spark-kafka").glob("*.jar"))
