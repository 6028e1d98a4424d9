"""Read a version of a query's state as a DataFrame, with Spark's own reader."""

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
    """Return the state of an operator after a batch.

    The session must be configured for the table with `configure`. Spark reads the provider and the format of the state
    from the query's checkpoint. As many versions exist as `spark.sql.streaming.minBatchesToRetain` keeps.

    Args:
        spark: The session.
        checkpoint: The checkpoint directory of the query.
        batch_id: The number of the batch. Default: the newest.
        operator_id: The number of the operator.
        store_name: For a join, the store to read.
        join_side: For a join, the side to read, in place of `store_name`.

    Returns:
        A DataFrame with the columns `partition_id`, `key` and `value`.

    Raises:
        ValueError: Both `store_name` and `join_side` are given.
    """
    if store_name is not None and join_side is not None:
        raise ValueError("store_name and join_side cannot be combined")
    options = {"batchId": batch_id, "operatorId": operator_id, "storeName": store_name, "joinSide": join_side}
    reader = spark.read.format("statestore")
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(checkpoint)
