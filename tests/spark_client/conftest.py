"""The Spark session that the modules of the group `spark` share."""

import pytest
from pyspark.sql import SparkSession

from spark_client.sessions import shared_session


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session with a separate configuration: `local[2,2]`, with the connector to Kafka."""
    return shared_session()
