"""Kafka's hash, and the partitions that it gives."""

import pytest

from spark_client.kafka_placement.keys import placed
from tableside_spark import default_partition
from tableside_spark.partitioning.partitioner import murmur2

KAFKAS_OWN_EXAMPLES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def test_kafkas_own_examples_have_its_hashes() -> None:
    assert {key: murmur2(key.encode()) for key in KAFKAS_OWN_EXAMPLES} == {
        key: signed & 0xFFFFFFFF for key, signed in KAFKAS_OWN_EXAMPLES.items()
    }


def test_500_keys_have_the_partitions_of_kafkas_producer() -> None:
    table = placed()
    assert len(table) == 500
    assert {row.num_partitions for row in table} == set(range(1, 98))
    assert {len(row.key) for row in table if isinstance(row.key, bytes)} == set(range(200))
    assert {len(row.key) for row in table if isinstance(row.key, str)} == set(range(40))
    assert sum(isinstance(row.key, str) and not row.key.isascii() for row in table) > 150
    for row in table:
        assert murmur2(row.key if isinstance(row.key, bytes) else row.key.encode()) == row.hash
        assert default_partition(row.key, row.num_partitions) == row.partition


@pytest.mark.parametrize("key", [7, None, 1.5, bytearray(b"7")])
def test_a_key_that_is_neither_text_nor_bytes_is_rejected(key: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(key).__name__}"):
        default_partition(key, 3)  # type: ignore[arg-type]
