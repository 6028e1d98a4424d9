"""Chunks keep the rows and their order, and respect the limits."""

import pyarrow as pa
from hypothesis import given, strategies as st

from tableside_client.arrow_table import ChunkSize, chunks


def batch(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 30))
def test_chunks_contain_every_row_once_in_order_and_are_full(counts: list[int], rows_max: int) -> None:
    starts = [sum(counts[:position]) for position in range(len(counts))]
    batches = [batch(start, count) for start, count in zip(starts, counts, strict=True)]
    result = list(chunks(batches, ChunkSize(rows_max, 1 << 30)))
    assert [n for chunk in result for n in chunk["n"].to_pylist()] == list(range(sum(counts)))
    assert all(chunk.num_rows == rows_max for chunk in result[:-1])
    assert all(0 < chunk.num_rows <= rows_max for chunk in result)


def test_a_chunk_stays_within_its_bytes_unless_it_is_a_single_row() -> None:
    result = list(chunks([batch(0, 100)], ChunkSize(1_000, 80)))
    assert sum(chunk.num_rows for chunk in result) == 100
    assert all(chunk.nbytes <= 80 for chunk in result)
    assert [chunk.num_rows for chunk in chunks([batch(0, 3)], ChunkSize(1_000, 1))] == [1, 1, 1]
