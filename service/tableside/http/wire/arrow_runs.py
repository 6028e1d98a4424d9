"""Runs of rows with the same operation, so that a column `op` costs little more than the parameter `op`."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

RUN_ROWS_MIN = 16
"""If the runs of some rows are shorter on average, each row is decoded separately."""


def runs(rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """Divide rows into runs with the same operation. Each run lacks the column `op` and the columns without values.

    If the runs are short, return all rows in one, with None as the operation.
    """
    distinct, others = pc.unique(rows.column("op")), rows.drop_columns("op")
    if len(distinct) == 1:  # The usual case, which takes less time than finding runs.
        yield distinct[0].as_py(), without_empty_columns(others)
        return
    try:
        encoded = pc.run_end_encode(rows.column("op").cast(pa.large_utf8()).combine_chunks())
    except pa.ArrowNotImplementedError:  # PyArrow does not convert a dictionary of views.
        yield None, rows
        return
    if len(encoded.values) * RUN_ROWS_MIN > rows.num_rows:
        yield None, rows
        return
    start = 0
    for op, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        yield op, without_empty_columns(others.slice(start, end - start))
        start = end


def without_empty_columns(rows: pa.Table) -> pa.Table:
    """Return rows without the columns that contain only nulls, because a null is an absent member.

    In `partitions` a null means all partitions, so this column stays.
    """
    empty = [name for name in rows.column_names if rows.column(name).null_count == rows.num_rows]
    return rows.drop_columns([name for name in empty if name not in ("key", "partitions")])
