"""The change feed contains every change of a batch, as with Spark's own providers."""

from typing import Any

import pytest

from spark_client.state.java import Java
from spark_client.state.suite import FETCHING, HDFS, HDFS_BACKED, IN_MEMORY, ROCKSDB, TABLESIDE
from support.running import Service

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

Change = tuple[str, str, int] | tuple[str, str]
PUT, REMOVE = "put", "remove"
COMMITS: dict[str, list[list[Change]]] = {
    "several changes of a key": [[(PUT, "a", 1), (PUT, "a", 2), (PUT, "b", 3), (REMOVE, "b")]],
    "equal values": [[(PUT, "a", 1), (PUT, "a", 1)], [(PUT, "a", 1)]],
    "removed and put again": [[(PUT, "a", 1)], [(REMOVE, "a"), (PUT, "a", 2), (REMOVE, "a"), (PUT, "a", 3)]],
    "order": [[(PUT, "c", 1), (PUT, "a", 2), (PUT, "b", 3), (PUT, "a", 4), (PUT, "c", 5)]],
    "empty commits": [[], [(PUT, "a", 1)], [], [(REMOVE, "a")]],
}
SUBJECTS = [HDFS, ROCKSDB, *TABLESIDE]


def expected(commits: list[list[Change]], first: int) -> list[list[Any]]:
    """Return the feed of operations that remove no absent key."""
    kinds = {PUT: "update", REMOVE: "delete"}
    return [
        [batch, kinds[change[0]], f"{change[1]}/0", change[2] if len(change) == 3 else None]
        for batch, changes in enumerate(commits)
        for change in changes
        if batch >= first - 1
    ]


@pytest.mark.parametrize("commits", COMMITS.values(), ids=list(COMMITS))
@pytest.mark.parametrize("arguments", SUBJECTS, ids=str, indirect=True)
def test_every_change_is_recorded_in_order(java: Java, arguments: dict[str, Any], commits: list[list[Change]]) -> None:
    for first in range(1, len(commits) + 1):
        feed = java.run("ChangeFeedCases", "feed", commits=commits, first=first, **arguments)
        assert feed == expected(commits, first)


@pytest.mark.parametrize("seed", range(2))
def test_random_changes_give_the_same_feed_as_sparks_provider(
    java: Java, state_service: Service, tmp_path: Any, seed: int
) -> None:
    feeds = [
        java.run("ChangeFeedCases", "randomFeed", seed=seed, **subject.arguments(tmp_path, state_service.url))
        for subject in (HDFS_BACKED, *IN_MEMORY, FETCHING[1])
    ]
    assert len(feeds[0]) > 30
    assert all(feed == feeds[0] for feed in feeds[1:])
