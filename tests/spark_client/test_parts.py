"""The parts of a key with many rows: their tokens, their rounds, and the consequences of a failed part."""

import pyarrow as pa
import pytest

from tableside_spark.executor.operation_batch import LATER_PARTS, PARTS_MAX, StoppedKeys, Token, part_token, rounds
from tableside_spark.write.tokens import parse_token


def batch(*later_parts: int) -> pa.RecordBatch:
    return pa.record_batch({LATER_PARTS: pa.array(later_parts, pa.int32())})


def sizes(*batches: pa.RecordBatch) -> list[tuple[int, list[int]]]:
    return [(later, [piece.num_rows for piece in pieces]) for later, pieces in rounds(batches)]


def test_the_last_part_has_the_token_of_the_write_and_sequences_increase() -> None:
    for sequence in (0, 7, 2**43 - 1, 2**43, 2**63 - 1):
        token = Token("w", sequence)
        assert part_token(token, 0) == token
        parts = [part_token(token, later) for later in range(PARTS_MAX - 1, 0, -(PARTS_MAX // 16))]
        assert len({part.writer for part in parts if part}) == 1
        sequences = [part.sequence for part in parts if part]
        assert sequences == sorted(set(sequences))
        assert 0 <= sequences[0] <= sequences[-1] < 2**63
    assert part_token(None, 3) is None


def test_the_parts_of_the_next_write_follow_those_of_the_last_one() -> None:
    earlier, later = part_token(Token("w", 5), 1), part_token(Token("w", 6), PARTS_MAX - 1)
    assert earlier is not None
    assert later is not None
    assert earlier.writer == later.writer
    assert earlier.sequence < later.sequence


def test_a_derived_writer_is_within_the_limit_and_reserved() -> None:
    longest = parse_token(("w" * 122, 2**63 - 1))
    derived = part_token(longest, 1)
    assert derived is not None
    assert len(derived.writer) == 128
    for name in (derived.writer[-20:], "w#reset"):
        with pytest.raises(ValueError, match="reserved"):
            parse_token(name)
    assert parse_token("job~2026") == Token("job~2026", 0)


def test_more_parts_than_a_sequence_can_number_are_refused() -> None:
    with pytest.raises(ValueError, match="the rows of a key exceed 1048576 parts"):
        part_token(Token("w", 0), PARTS_MAX)


def test_a_round_contains_operations_with_the_same_number_of_later_parts() -> None:
    assert sizes(batch(2, 1, 1), batch(1, 0, -1, 0), batch(1, 0)) == [
        (2, [1]), (1, [2, 1]), (0, [3]), (1, [1]), (0, [1]),
    ]  # fmt: skip
    assert sizes(pa.record_batch({"k": [1, 2]})) == [(0, [2])]


def test_a_failed_part_stops_the_later_parts_of_its_key_alone() -> None:
    stopped = StoppedKeys(["a", "b"])
    operations = pa.table({"a": ["x", "x", "y"], "b": [1, 2, 1]})
    assert stopped.mask(operations).to_pylist() == [False] * 3
    reason = pa.table({"a": ["x"], "b": [2], "code": ["too_large"], "detail": [None], "retriable": [False]})
    stopped.add(reason, "code", "detail", "retriable")
    assert stopped.mask(operations).to_pylist() == [False, True, False]
    assert [column.to_pylist() for column in stopped.reasons(operations.slice(1, 1))] == [
        ["too_large"],
        [None],
        [False],
    ]
