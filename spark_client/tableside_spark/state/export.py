"""A version of a query's state as a frame: Spark's own reader, told where the state is."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def export(
    spark: "SparkSession",
    checkpoint: str,
    *,
    batch_id: int | None = None,
    operator_id: int = 0,
    store_name: str | None = None,
    join_side: Literal["left", "right"] | None = None,
) -> "DataFrame":
    """Return the state of an operator as it was after a batch, the newest if none is named.

    Columns are `partition_id`, `key` and `value`. The session is one that `configure` made for this table; which
    provider wrote the state, and in which format, Spark reads in the query's checkpoint. Of a join, name a side, or
    one of its stores. The last versions are there, as many as `spark.sql.streaming.minBatchesToRetain` says.
    """
    if store_name is not None and join_side is not None:
        raise ValueError("a side of a join is read, or one of its stores: not both")
    options = {"batchId": batch_id, "operatorId": operator_id, "storeName": store_name, "joinSide": join_side}
    reader = spark.read.format("statestore")
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(checkpoint)
