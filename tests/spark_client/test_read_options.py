"""The options of the data source for reading."""

import pytest

from tableside_client.table_schema import TableSchema
from tableside_spark.datasource.options import parse_read_options

PLAIN = TableSchema()
PAIR = TableSchema(("who", "at"), ("string", "integer"))


def test_partition_is_a_first_part_of_the_key_or_an_index_of_a_partitioned_table() -> None:
    copies, pairs = TableSchema(partitions=3), TableSchema(PAIR.key_names, PAIR.key_types, partitions=3)
    assert parse_read_options({"partition": "2"}, copies).partitions == (2,)
    for table in (PAIR, pairs):
        found = parse_read_options({"partition": "2"}, table)
        assert (found.partition, found.partitions) == ("2", None)
    assert parse_read_options({"partition": "a", "partitions": "2, 0,2"}, pairs).partitions == (0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": "0"}, "the option splits is a number from 1 to 1024, not '0'"),
        ({"splits": "many"}, "the option splits is a number from 1 to 1024"),
        ({"partitions": "0"}, "the option partitions is for a partitioned table"),
        ({"on_mismatch": "skip"}, "on_mismatch is fail or null, not 'skip'"),
        ({"pushdown": "yes"}, "the option pushdown is true or false"),
    ],
)
def test_an_option_that_is_not_valid_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_read_options(options, PLAIN)


@pytest.mark.parametrize("text", ["", "3", "-1", "0,,1", "a"])
def test_indexes_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="partitions are numbers from 0 to 2, separated by commas"):
        parse_read_options({"partitions": text}, TableSchema(partitions=3))
