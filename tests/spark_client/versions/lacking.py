"""A feature that a version of PySpark lacks is rejected. The error names the version that has it.

`test_versions` runs these cases with the older versions.
"""

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from support.running import Service
from tableside_spark import Table, register, state, versions
from tableside_spark.plan.frames import check_key_columns
from tableside_spark.versions import FEATURES, PySparkVersionError

pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SOURCE = "the data source tableside"
CONNECT = "Spark Connect"
LIST = "a list of values of several types"
SINK = "the data source tableside for streaming writes"
PUSHDOWN = "the option pushdown"
STATE = "the state store"


def lacks(feature: str, *, has: str | None = None) -> pytest.MarkDecorator:
    """Run a case only if PySpark lacks a feature, and `has` another one."""
    runs = not versions.supports(feature) and (has is None or versions.supports(has))
    return pytest.mark.skipif(not runs, reason=f"PySpark {pyspark.__version__} has {feature}, or lacks {has}")


def rejected(feature: str) -> str:
    """Return a pattern for the error."""
    return f"{feature} needs PySpark {FEATURES[feature]} or later; this is PySpark {pyspark.__version__}"


@lacks(SOURCE)
def test_the_data_source_is_not_registered(spark: SparkSession) -> None:
    with pytest.raises(PySparkVersionError, match=rejected(SOURCE)):
        register(spark)


@lacks(LIST)
def test_a_list_of_several_types_is_rejected_and_nothing_is_written(spark: SparkSession, service: Service) -> None:
    table = Table("lacking", service.url)
    rows = spark.range(1).select(col("id").cast("string").alias("k"))
    with pytest.raises(PySparkVersionError, match=rejected(LIST)):
        table.update(rows, "k", {"$set": {"all": [1, "one"]}}, default={})
    table.update(rows, "k", {"$set": {"all": [1, 2]}}, default={})
    assert table.enrich(rows, "k", "all array<int>").collect()[0]["all"] == [1, 2]


@lacks(CONNECT)
def test_a_frame_of_spark_connect_is_rejected() -> None:
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(PySparkVersionError, match=rejected(CONNECT)):
        check_key_columns(remote(), "k")


@lacks(PUSHDOWN, has=SOURCE)
def test_pushdown_is_rejected(spark: SparkSession, service: Service) -> None:
    options = {"url": service.url, "table": "lacking_source", "pushdown": "true"}
    with pytest.raises(Exception, match=rejected(PUSHDOWN)):
        spark.read.format("tableside").options(**options).load().collect()


@lacks(SINK, has=SOURCE)
def test_a_streaming_write_with_the_data_source_is_rejected(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    spark.range(3).selectExpr("cast(id as string) as k").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("k string").parquet(str(tmp_path / "in"))
    writer = stream.writeStream.format("tableside").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.options(url=service.url, table="lacking_sink", key="k").trigger(availableNow=True)
    with pytest.raises(Exception, match=rejected(SINK)):
        writer.start().awaitTermination()


@lacks(STATE)
def test_the_state_store_is_rejected() -> None:
    with pytest.raises(PySparkVersionError, match=rejected(STATE)):
        state.configure(SparkSession.builder, "http://127.0.0.1:8080", "state")
