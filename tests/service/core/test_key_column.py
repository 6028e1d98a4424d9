"""A column of keys is used as it is only if each of its keys is valid."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract import COMPOSITE, INTEGERS, STRINGS, THREE_PARTS
from tableside.core import columns
from tableside.core.columns import KEY_BYTES_MAX, key_column
from tableside.core.errors import InvalidOperation
from tableside.core.keys import KeySchema

KEYS_MIN = 32

VALID_TEXTS = [
    "a", "b", "ü", "\x01", "\u2028", "a/b", "0", "x" * 1024, "ü" * 512, "🛫" * 256, "x" + "ü" * 511,
]  # fmt: skip
INVALID_TEXTS = {
    "empty": "",
    "NUL": "\0",
    "NUL within": "a\0b",
    "NUL at the end": "x" * 1023 + "\0",
    "1025 bytes": "x" * 1025,
    "1025 bytes of UTF-8": "x" + "ü" * 512,
    "1026 bytes of UTF-8": "ü" * 513,
    "1028 bytes of UTF-8": "🛫" * 257,
    "null": None,
}

TEXT_KINDS = [pa.utf8(), pa.large_utf8()]
INTEGER_KINDS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
SHARING_KINDS = [pa.string_view(), *(pa.dictionary(pa.int8(), kind) for kind in (pa.utf8(), pa.int64()))]
"""Rows of these types may share their bytes, so their keys are checked one by one."""


@pytest.fixture(autouse=True)
def _short_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "KEYS_MIN", KEYS_MIN)


def valid_keys(cells: Sequence[Any], schema: KeySchema) -> list[Any] | None:
    """Return the keys, or None if one is invalid."""
    try:
        return [schema.from_json(cell) for cell in cells]
    except InvalidOperation:
        return None


def check(column: pa.ChunkedArray, schema: KeySchema) -> None:
    found, expected = key_column(column, schema), valid_keys(column.to_pylist(), schema)
    assert (found is None) == (expected is None)
    if found is not None:
        assert expected is not None
        assert found.to_pylist() == expected
        assert found.type == (pa.utf8() if schema == STRINGS else pa.int64())


def integers_of(kind: pa.DataType) -> st.SearchStrategy[int]:
    signed = pa.types.is_signed_integer(kind)
    low, high = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)) if signed else (0, 2**kind.bit_width)
    return st.sampled_from([low, low + 1, 0, 1, high // 2, high - 1])


def cells_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Rows that are mostly valid, so that some columns are valid and the others have few invalid keys."""
    if kind in INTEGER_KINDS:
        usual, unusual = st.integers(0, 127), integers_of(kind) | st.none()
    else:
        usual, unusual = st.sampled_from(VALID_TEXTS), st.sampled_from([*INVALID_TEXTS.values()])
    placed = st.tuples(st.integers(0, KEYS_MIN), unusual)
    return st.builds(
        with_cells, st.lists(usual, min_size=KEYS_MIN, max_size=KEYS_MIN + 8), st.lists(placed, max_size=2)
    )


def with_cells(cells: list[Any], placed: list[tuple[int, Any]]) -> list[Any]:
    for place, cell in placed:
        cells.insert(place, cell)
    return cells


KINDS = TEXT_KINDS + INTEGER_KINDS


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_column_of_gets_has_exactly_the_valid_keys(kind: pa.DataType, full: bool) -> None:
    @settings(max_examples=300 if full else 60, deadline=None, derandomize=True, database=None)
    @given(
        cells=cells_of(kind),
        cuts=st.lists(st.integers(0, KEYS_MIN + 10), max_size=3),
        before=st.integers(0, 2),
    )
    def run(cells: list[Any], cuts: list[int], before: int) -> None:
        places = [0, *sorted(min(cut, len(cells)) for cut in cuts), len(cells)]
        chunks = [
            # A slice has an offset in its buffers. The rows before it are not keys of the batch.
            pa.array([*[None] * before, *cells[low:high]], kind)[before:]
            for low, high in pairwise(places)
        ]
        for schema in (STRINGS, INTEGERS):
            check(pa.chunked_array(chunks, kind), schema)

    run()


@pytest.mark.parametrize("kind", TEXT_KINDS, ids=str)
@pytest.mark.parametrize("invalid", INVALID_TEXTS.values(), ids=INVALID_TEXTS.keys())
@pytest.mark.parametrize("place", [0, 20, 40])
def test_one_invalid_text_suffices(kind: pa.DataType, invalid: str | None, place: int) -> None:
    cells = [f"k{index}" for index in range(40)]
    check(pa.chunked_array([pa.array(cells, kind)]), STRINGS)
    cells.insert(place, invalid)  # type: ignore[arg-type]  # a null
    assert key_column(pa.chunked_array([pa.array(cells, kind)]), STRINGS) is None


@pytest.mark.parametrize("invalid", [2**63, 2**64 - 1, None])
def test_one_integer_beyond_64_bits_suffices(invalid: int | None) -> None:
    cells = [2**63 - 1, *range(40)]
    check(pa.chunked_array([pa.array(cells, pa.uint64())]), INTEGERS)
    assert key_column(pa.chunked_array([pa.array([*cells, invalid], pa.uint64())]), INTEGERS) is None


@pytest.mark.parametrize("kind", SHARING_KINDS, ids=str)
@pytest.mark.parametrize("schema", [STRINGS, INTEGERS])
def test_rows_that_may_share_bytes_are_no_column(kind: pa.DataType, schema: KeySchema) -> None:
    cells = pa.array([*range(40)] if "int64" in str(kind) else [f"k{index}" for index in range(40)])
    column = cells.dictionary_encode() if pa.types.is_dictionary(kind) else cells.cast(kind)
    assert key_column(pa.chunked_array([column]), schema) is None


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_keys_of_another_type_are_no_column(kind: pa.DataType) -> None:
    is_text = kind in TEXT_KINDS
    column = pa.chunked_array([pa.array([f"{n}" if is_text else n for n in range(40)], kind)])
    assert key_column(column, INTEGERS if is_text else STRINGS) is None


@pytest.mark.parametrize("schema", [COMPOSITE, THREE_PARTS])
def test_keys_of_several_parts_are_no_column(schema: KeySchema) -> None:
    parts: list[Callable[[int], Any]] = [str, lambda n: n, lambda n: {"user": str(n), "day": n}]
    for part in parts:
        assert key_column(pa.chunked_array([pa.array([part(n) for n in range(40)])]), schema) is None


@pytest.mark.parametrize("schema", [STRINGS, INTEGERS])
def test_a_struct_is_no_key_of_one_part(schema: KeySchema) -> None:
    for row in ({"id": "a"}, {"id": 1}):
        assert key_column(pa.chunked_array([pa.array([row] * 40)]), schema) is None


def test_short_and_large_columns_are_checked_key_by_key() -> None:
    for count in (KEYS_MIN - 1, KEYS_MIN):
        assert (key_column(pa.chunked_array([["a"] * count]), STRINGS) is None) == (count < KEYS_MIN)
        assert (key_column(pa.chunked_array([[7] * count]), INTEGERS) is None) == (count < KEYS_MIN)
    for length in (900, 1024):
        column = pa.chunked_array([["x" * length] * 1024])
        assert (key_column(column, STRINGS) is None) == (column.nbytes > KEY_BYTES_MAX)
    assert key_column(pa.chunked_array([], pa.utf8()), STRINGS) is None
