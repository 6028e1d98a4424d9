"""A partition's state in memory: it equals a map, in every version that still exists."""

import pytest

from spark_client.state.java import Java, names

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

SEEDED = {"randomly", "inTurns", "twoThreadsEditOneVersion", "smallCommits"}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inline", [True, False], ids=["values", "lengths"])
@pytest.mark.parametrize(("keys", "rounds"), [(3, 60), (40, 80), (1_500, 12)])
def test_every_version_holds_what_a_map_would(java: Java, keys: int, rounds: int, inline: bool, seed: int) -> None:
    java.run("EntriesCases", "randomly", keys=keys, rounds=rounds, inline=inline, value_max=60, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_versions_hold_it_as_well_when_memory_is_reclaimed(java: Java, seed: int) -> None:
    assert java.run("EntriesCases", "randomly", keys=30, rounds=80, inline=True, value_max=5_000, seed=seed) >= 5
    assert java.run("EntriesCases", "randomly", keys=1_500, rounds=30, inline=False, value_max=0, seed=seed) >= 3


@pytest.mark.parametrize("seed", range(5))
def test_edits_that_go_on_in_turns_do_not_disturb_each_other(java: Java, seed: int) -> None:
    assert java.run("EntriesCases", "inTurns", seed=seed) >= 100


@pytest.mark.parametrize("seed", range(5))
def test_two_threads_that_edit_one_version_do_not_disturb_each_other(java: Java, seed: int) -> None:
    java.run("EntriesCases", "twoThreadsEditOneVersion", seed=seed)


@pytest.mark.parametrize("zombies", [False, True])
def test_very_many_small_commits_do_not_add_up(java: Java, zombies: bool) -> None:
    assert java.run("EntriesCases", "smallCommits", zombies=zombies) < 300_000


@pytest.mark.parametrize("case", [name for name in names("EntriesCases") if name not in SEEDED])
def test_entries(java: Java, case: str) -> None:
    java.run("EntriesCases", case)
