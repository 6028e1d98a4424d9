"""The partition of a record: the one that Kafka's own producer chooses, or the one that the caller names."""

import pytest

from spark_client.kafka_placement.keys import placed as placed_by_kafka
from tableside.core.errors import InvalidOperation
from tableside.core.partitioner import default_partition, murmur2, parse_partitions

CHOICES: dict[str, tuple[object, tuple[int, ...] | None]] = {
    "all by name": ("all", (0, 1, 2)),
    "all by -1": ([-1], (0, 1, 2)),
    "default": ("default", None),
    "default in a list": ([None], None),
    "nowhere": ([], ()),
    "one": ([2], (2,)),
    "several, in any order and repeated": ([2, 0, 2], (0, 2)),
    "a number that is an integer": ([1.0], (1,)),
}

REFUSED: dict[str, tuple[object, str]] = {
    "outside": ([0, 3], "no partition 3: this table has partitions 0 to 2"),
    "-1 and another": ([-1, 0], "-1 in partitions must be the only element; it means all 3"),
    "null and another": ([None, 0], "null in partitions must be the only"),
    "a text": (["1"], "an integer"),
    "a fraction": ([0.5], "an integer"),
    "no list": (1, "below 3"),
}


def test_500_keys_have_the_partitions_of_kafkas_producer() -> None:
    table = placed_by_kafka()
    assert len(table) == 500
    for row in table:
        encoded = row.key if isinstance(row.key, bytes) else row.key.encode()
        assert murmur2(encoded) == row.hash
        assert (murmur2(encoded) & 0x7FFFFFFF) % row.num_partitions == row.partition
        if isinstance(row.key, str):
            assert default_partition(row.key, row.num_partitions) == row.partition
            assert default_partition((row.key, 7), row.num_partitions) == row.partition


@pytest.mark.parametrize("key", [0, 7, -1, 2**63 - 1, -(2**63)])
def test_an_integer_is_placed_as_its_decimal_text(key: int) -> None:
    for count in (1, 2, 12, 256):
        assert default_partition(key, count) == default_partition(str(key), count)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_of_partitions_is_parsed(choice: str) -> None:
    raw, wanted = CHOICES[choice]
    assert parse_partitions(raw, 3) == wanted


@pytest.mark.parametrize("choice", REFUSED)
def test_an_invalid_choice_of_partitions_is_rejected(choice: str) -> None:
    raw, detail = REFUSED[choice]
    with pytest.raises(InvalidOperation, match=detail):
        parse_partitions(raw, 3)
