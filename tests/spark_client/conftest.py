"""The session of the modules that share one Spark, which are in the group `spark`."""

import pytest
from pyspark.sql import SparkSession

from spark_client.kafka_sessions import shared_session


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session with a configuration of its own: `local[2,2]`, with the connector to Kafka."""
    return shared_session()
