"""Kafka's hash gives the partitions of its producer."""

import pytest

from spark_client.kafka_placement.keys import placed
from tableside_spark import default_partition
from tableside_spark.partitioning import murmur2


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
