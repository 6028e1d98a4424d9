"""A partition's state in memory: it equals a map, in every version that still exists."""

import pytest

from spark_client.state.java import Java, names

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

SEEDED = {"randomChanges", "editsInTurns", "twoThreadsEditOneVersion", "smallCommits"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("inline", [True, False], ids=["values", "lengths"])
@pytest.mark.parametrize(("keys", "rounds"), [(3, 60), (40, 80), (1_500, 12)])
def test_every_version_equals_a_map(java: Java, keys: int, rounds: int, inline: bool, seed: int) -> None:
    java.run("EntriesCases", "randomChanges", keys=keys, rounds=rounds, inline=inline, value_max=60, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_every_version_equals_a_map_after_compaction(java: Java, seed: int) -> None:
    assert java.run("EntriesCases", "randomChanges", keys=30, rounds=80, inline=True, value_max=5_000, seed=seed) >= 5
    assert java.run("EntriesCases", "randomChanges", keys=1_500, rounds=30, inline=False, value_max=0, seed=seed) >= 3


@pytest.mark.parametrize("seed", range(5))
def test_interleaved_edits_are_isolated(java: Java, seed: int) -> None:
    assert java.run("EntriesCases", "editsInTurns", seed=seed) >= 100


@pytest.mark.parametrize("seed", range(5))
def test_concurrent_edits_are_isolated(java: Java, seed: int) -> None:
    java.run("EntriesCases", "twoThreadsEditOneVersion", seed=seed)


@pytest.mark.parametrize("zombies", [False, True])
def test_many_small_commits_need_little_memory(java: Java, zombies: bool) -> None:
    assert java.run("EntriesCases", "smallCommits", zombies=zombies) < 300_000


@pytest.mark.parametrize("case", [name for name in names("EntriesCases") if name not in SEEDED])
def test_entries(java: Java, case: str) -> None:
    java.run("EntriesCases", case)
