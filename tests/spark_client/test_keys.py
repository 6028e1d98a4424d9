"""Keys of a chunk: each is requested once, and its result is assigned to every row."""

import pyarrow as pa
from hypothesis import given, strategies as st

from tableside_client.key_columns import distinct_keys

PARTS = st.one_of(st.none(), st.sampled_from(["a", "b", "ü", ""]))


@given(st.lists(st.tuples(PARTS, st.one_of(st.none(), st.integers(-2, 2)), PARTS), max_size=30))
def test_composite_keys_are_distinct_and_map_to_every_row(
    rows: list[tuple[str | None, int | None, str | None]],
) -> None:
    columns = [
        pa.array([row[0] for row in rows], pa.string()),
        pa.array([row[1] for row in rows], pa.int16()),
        pa.array([row[2] for row in rows], pa.string()),
    ]
    found = distinct_keys(columns, ["x", "y", "z"])
    keys = [tuple(key.values()) for key in found.keys.to_pylist()]
    assert len(set(keys)) == len(keys)
    back = [None if position is None else keys[position] for position in found.positions.to_pylist()]
    assert back == [None if None in row else row for row in rows]


def test_a_single_column_is_the_key_and_integers_have_64_bits() -> None:
    found = distinct_keys([pa.array([3, 1, None, 3], pa.int8())], ["n"])
    assert found.keys.type == pa.int64()
    assert found.keys.to_pylist() == [3, 1]
    assert found.positions.to_pylist() == [0, 1, None, 0]
    assert not found.is_identity
    assert distinct_keys([pa.array(["a", "b"])], ["k"]).is_identity


def test_composite_keys_of_many_parts_with_many_values_are_distinct() -> None:
    """With one code for all parts, both keys would have the same code modulo 2^64."""
    others = 4096
    columns = [["x", "y", *([None] * others)], ["b0", "b0", *(f"b{at % 16}" for at in range(others))]]
    columns += [[f"{name}0"] * 2 + [f"{name}{at}" for at in range(others)] for name in "cdefg"]
    found = distinct_keys([pa.array(column) for column in columns], list("abcdefg"))
    assert [key["a"] for key in found.keys.to_pylist()] == ["x", "y"]
    assert found.positions.to_pylist() == [0, 1, *([None] * others)]
