"""The parts of a key with many rows: their tokens, and how many there may be."""

import pytest

from tableside_spark.executor.operation_batch import PARTS_MAX, Token, part_token
from tableside_spark.write.tokens import parse_token


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
