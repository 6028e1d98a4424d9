"""The memory of a query decides whether a micro-batch is repeated, or a number that returns."""

import pytest

from tableside_spark.write.query_memory import BATCH_NUMBERS, BATCHES_MAX, RUNS_MAX, Content, QueryMemory


def remembered(*digests: str) -> QueryMemory:
    memory = QueryMemory()
    for number, digest in enumerate(digests):
        memory = memory.begin(number, Content(digest))
    return memory


@pytest.mark.parametrize(("number", "digest"), [(0, "a"), (1, "b")])
def test_a_number_with_the_same_content_is_a_repetition(number: int, digest: str) -> None:
    assert remembered("a", "b").repeats(number, digest)


@pytest.mark.parametrize(("number", "digest"), [(0, "b"), (1, "a"), (1, "c"), (0, "")])
def test_a_number_with_other_content_is_no_repetition(number: int, digest: str) -> None:
    assert not remembered("a", "b").repeats(number, digest)


@pytest.mark.parametrize(("before", "digest"), [("", "b"), ("b", ""), ("", "")])
def test_without_a_digest_the_latest_number_is_a_repetition(before: str, digest: str) -> None:
    assert remembered("a", before).repeats(1, digest)


def test_a_returning_number_begins_an_epoch_and_forgets_later_ones() -> None:
    memory = remembered("a", "b", "c").begin(1, Content("d"))
    assert (memory.epoch, memory.digests) == (1, {0: "a", 1: "d"})
    assert memory.sequence(1) == BATCH_NUMBERS + 1 > remembered("a", "b", "c").sequence(2)


def test_an_old_micro_batch_is_forgotten() -> None:
    memory = remembered(*map(str, range(BATCHES_MAX + 1)))
    assert (min(memory.digests), len(memory.digests)) == (1, BATCHES_MAX)
    assert not memory.repeats(0, "0")


def test_the_latest_runs_are_remembered_in_order() -> None:
    memory = QueryMemory()
    for number in range(RUNS_MAX + 2):
        memory = memory.begin(number, Content(run=f"run {number}")).begin(number + 1, Content(run=f"run {number}"))
    assert memory.runs == tuple(f"run {number}" for number in range(2, RUNS_MAX + 2))
