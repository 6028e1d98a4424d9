"""The cases that run with every supported version of PySpark, by feature."""

from dataclasses import dataclass

OLDER = ("3.5", "4.0", "4.1", "4.2")
"""The versions besides the one that runs the whole suite, each with a file in `requirements`."""

NEWEST = "4.3"

CONNECT_CLIENTS = {"4.0": "4.0", "4.1": "4.1", "4.2": "4.2", "4.3": "4.2"}
"""The newest `pyspark-client` for the server of each version, with a file in `requirements`."""

FOLDER = "tests/spark_client"


@dataclass(frozen=True)
class Feature:
    """A feature, the oldest version of PySpark that has it, and its cases, relative to `FOLDER`."""

    name: str
    since: str
    cases: tuple[str, ...]


FEATURES = (
    Feature("`put` and `enrich`", "3.5", ("test_spark.py::test_put_records_are_joined",)),
    Feature("Types as JSON", "3.5", ("test_spark.py::test_every_type_is_written_as_json",)),
    Feature(
        "`update`",
        "3.5",
        (
            "test_spark.py::test_merge_patches_floats_and_opaque_updates",
            "test_sequences.py::test_each_member_gets_its_own_newest_row[set-omit]",
        ),
    ),
    Feature(
        "Updates applied once, on executors in separate processes",
        "3.5",
        ("test_spark_cluster.py::test_tasks_that_fail_after_sending_count_once",),
    ),
    Feature("`replace`", "3.5", ("test_replace.py::test_rows_that_fail_are_collected_or_handled",)),
    Feature("`enrich` of a stream", "3.5", ("test_spark.py::test_a_stream_is_joined",)),
    Feature(
        "`update` of a stream",
        "3.5",
        ("test_streams.py::test_an_update_counts_once_over_repeated_micro_batches_and_restarts[True]",),
    ),
    Feature("Dead letters", "3.5", ("test_streams.py::test_dead_letters_contain_the_row_and_the_reason_once",)),
    Feature(
        "Partitioners in Python",
        "3.5",
        (
            "test_multicast.py::test_every_kind_of_answer_has_its_copies_and_every_row_is_counted[in_python]",
            "test_partitioned.py::test_without_partitions_rows_go_to_the_default_partition",
        ),
    ),
    Feature(
        "Lists of values of several types in an update",
        "4.0",
        ("test_spark.py::test_folded_and_listed_updates_leave_equal_tables[write]",),
    ),
    Feature("Format `tableside`", "4.0", ("test_spark.py::test_the_format_reads_its_own_writes_by_splits",)),
    Feature("Spark Connect", "4.0", ("test_spark_connect.py",)),
    Feature(
        "Format `tableside` as a streaming sink",
        "4.1",
        ("test_streams.py::test_the_last_row_of_a_key_wins_and_late_tasks_change_nothing",),
    ),
    Feature(
        "Option `pushdown`",
        "4.1",
        ("test_source_reading.py::test_filters_on_the_key_are_pushed_down_with_the_same_rows",),
    ),
    Feature(
        "State store",
        "4.1",
        (
            "state/test_page.py::test_the_programs_and_commands_have_the_documented_effects",
            "state/test_state_connect.py",
        ),
    ),
)


def nodes(version: str) -> list[str]:
    """Return the cases that a version of PySpark passes, as arguments of pytest."""
    return [f"{FOLDER}/{case}" for feature in FEATURES if has(feature, version) for case in feature.cases]


def has(feature: Feature, version: str) -> bool:
    """Whether a version of PySpark has a feature."""
    return _numbers(feature.since) <= _numbers(version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
