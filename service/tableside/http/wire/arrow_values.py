"""The values of an Arrow batch as canonical texts, and the number of rows that are decoded in one step."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from ...core import values
from ...core.columns import COLUMN_BYTES_MAX
from ...core.concurrency import Pieces
from .answers import PIECE_BYTES, PIECE_OPERATIONS

PIECE_ROWS = 1024
"""How many rows are converted to Python objects in one step."""


def piece_rows(rows: pa.Table, size_bytes: int) -> int:
    """Return how many rows are decoded in one step: as many as have `PIECE_BYTES` if they have the average size.

    Keys without documents are only checked, so that more of them fit into a step.
    """
    rows_max, bytes_max = (PIECE_ROWS, 2 * PIECE_BYTES) if rows.num_columns == 1 else (PIECE_OPERATIONS, PIECE_BYTES)
    fitting: int = bytes_max * rows.num_rows // max(1, size_bytes)
    return max(1, min(rows_max, fitting))


def all_values(rows: pa.Table, expired: Callable[[], bool]) -> Pieces[list[bytes] | None]:
    """Return the canonical texts of all values.

    Return None if one may be invalid, if they are too long together, or once the deadline has expired.
    """
    texts, size_bytes = list[bytes](), rows.nbytes
    texts_bytes = 0  # May exceed the size of the rows, for example if the rows of a dictionary share their texts.
    while len(texts) < rows.num_rows:
        found = short_values(rows.slice(len(texts), piece_rows(rows, size_bytes)))
        texts_bytes += sum(map(len, found or ()))
        if found is None or texts_bytes > COLUMN_BYTES_MAX or expired():
            return None
        texts += found
        yield
    return texts


def short_values(rows: pa.Table) -> Sequence[bytes] | None:
    """Return canonical values. Return None if one is invalid, or if they are too long to parse them in one step."""
    column = rows.column("value")
    if not all_present(rows, "value"):
        return None
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    texts = column.to_pylist()
    documents = values.parse_all(texts) if sum(map(len, texts)) <= 2 * PIECE_BYTES else None
    return None if documents is None else values.encode_all(documents, texts)


def all_present(rows: pa.Table, name: str) -> bool:
    """Return whether no cell of a column can be null."""
    return not any(_may_have_nulls(chunk) for chunk in rows.column(name).chunks)


def _may_have_nulls(column: pa.Array) -> bool:
    """Return whether a cell may be null. The `null_count` of a dictionary's rows ignores the nulls among its values."""
    return bool(column.null_count or (pa.types.is_dictionary(column.type) and column.dictionary.null_count))
