"""Find texts that are not valid UTF-8. Spark makes such texts from binary columns, and the service rejects them."""

from typing import Any

import pyarrow as pa


def invalid_utf8(column: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Return a mask of the texts that are not valid UTF-8, or None if there are none."""
    if not _is_text(column.type):
        return None
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(map(_is_invalid, comparable(column)), pa.bool_())
    return None


def comparable(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values that can be compared. Texts are bytes, because they may be invalid."""
    values: list[Any] = (column.cast(pa.large_binary()) if _is_text(column.type) else column).to_pylist()
    return values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_invalid(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return True
    return False
