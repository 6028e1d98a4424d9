"""The Java cases: requirements of any state store provider, faults, late attempts, memory, and stored records.

Spark's own providers pass the cases for any provider too, which shows that these require nothing else.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any
from zlib import crc32

import psutil
import pytest

from servers.process import free_port
from spark_client.state.java import Java, names
from spark_client.state.suite import FETCHING, HDFS, IN_MEMORY, KEPT_ON_DISK, ON_DISK, ROCKSDB, TABLESIDE, Subject
from support.running import running

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

ANY_PROVIDER = [HDFS, *TABLESIDE]
BOTH_WAYS = [IN_MEMORY[0], FETCHING[1]]
SUITES: dict[str, Sequence[Any]] = {
    "ReadWriteCases": ANY_PROVIDER,
    "IterationCases": ANY_PROVIDER,
    "RefusalCases": ANY_PROVIDER,
    "FaultCases": BOTH_WAYS,
    "ZombieCases": TABLESIDE,
    "CutOffCases": TABLESIDE,
    "SharingCases": [HDFS, *BOTH_WAYS],
    "MetricCases": [HDFS, *BOTH_WAYS],
    "RegistryCases": [HDFS, *BOTH_WAYS],
    "MemoryCases": TABLESIDE,
    "DiskCases": [ON_DISK],
    "MaintenanceCases": TABLESIDE,
    "DamageCases": [IN_MEMORY[1], FETCHING[0]],
    "ChangeFeedCases": TABLESIDE,
}
"""The classes of cases, and the providers that they test."""

KILLED = "theServiceIsKilledInTheMiddleOfACommit"
OTHERWISE: dict[str, Sequence[Any]] = {
    "theRetainedVersionsStayLoadable": ANY_PROVIDER,
    "aSnapshotChangesNothing": ANY_PROVIDER,
    "maintenanceDoesNotDisturbOpenStores": ANY_PROVIDER,
    "metricsOfACommitAreReportedOnce": TABLESIDE,
    "postponedMaintenanceUnloadsNoStore": BOTH_WAYS,
    "manyLargeChangesOfOneKeyNeedLittleMemory": [FETCHING[1]],
    **{case: [] for case in (KILLED, "allocatedPerByteOfALongValue", "feed", "randomFeed")},
}
"""Cases that test other providers than the rest of their class. Those with none have a test with arguments."""

ONE_STORE_AT_A_TIME = [
    "aStoreSeesItsOwnWrites",
    "anotherProviderContinues",
    "putRemoveAndPutOfOneKey",
    "aCommitWithoutUpdatesMakesAVersion",
    "noSuchVersionCannotBeLoaded",
    "aReadStoreIsUpgradedToAWriteStore",
]
"""Cases that Spark's RocksDB provider supports: they open one store at a time."""


def subjects(class_name: str, case: str) -> list[Any]:
    spark = [ROCKSDB] if class_name == "ReadWriteCases" and case in ONE_STORE_AT_A_TIME else []
    return [*OTHERWISE.get(case, SUITES[class_name]), *spark]


def cases() -> list[Any]:
    """Return every case with each of its providers."""
    found = []
    for class_name in SUITES:
        for case in names(class_name):
            for subject in subjects(class_name, case):
                value, marks = (subject, ()) if isinstance(subject, Subject) else (subject.values[0], subject.marks)
                found.append(pytest.param(value, class_name, case, id=f"{value}-{case}", marks=marks))
    return found


@pytest.mark.parametrize(("arguments", "class_name", "case"), cases(), indirect=["arguments"])
def test_a_provider(java: Java, arguments: dict[str, Any], class_name: str, case: str) -> None:
    java.run(class_name, case, **arguments)


@pytest.mark.parametrize("arguments", ANY_PROVIDER, ids=str, indirect=True)
def test_random_steps(java: Java, arguments: dict[str, Any], request: pytest.FixtureRequest, full: bool) -> None:
    seed = crc32(request.node.name.encode())  # each subject has a different seed, the same in every run
    java.run("ModelCases", "randomSteps", seed=seed, sequences=50 if full else 8, **arguments)


@pytest.mark.parametrize("arguments", [FETCHING[0]], ids=str, indirect=True)
def test_a_table_with_a_key_of_one_string(java: Java, arguments: dict[str, Any]) -> None:
    arguments["settings"]["table"] = "plain"
    java.run("ModelCases", "randomSteps", seed=1_000, sequences=5, **arguments)


@pytest.mark.parametrize("arguments", [IN_MEMORY[1], FETCHING[0]], ids=str, indirect=True)
def test_a_long_value_is_copied_few_times(java: Java, arguments: dict[str, Any]) -> None:
    assert java.run("MetricCases", "allocatedPerByteOfALongValue", **arguments) < 4


@pytest.mark.parametrize("case", names("ManifestCases"))
def test_manifests(java: Java, case: str) -> None:
    java.run("ManifestCases", case)


@pytest.mark.parametrize("case", names("LocalDiskCases"))
def test_blocks_on_the_local_disk(java: Java, tmp_path: Path, case: str) -> None:
    java.run("LocalDiskCases", case, directory=str(tmp_path))


@pytest.mark.parametrize("subject", [IN_MEMORY[0], pytest.param(FETCHING[1], marks=pytest.mark.full)], ids=str)
def test_a_service_killed_during_a_commit_loses_nothing(java: Java, subject: Subject, tmp_path: Path) -> None:
    config, port, done = tmp_path / "config.yaml", free_port(), Event()
    config.write_text(KEPT_ON_DISK)

    def start_again(killed: psutil.Process) -> None:
        while killed.is_running() and killed.status() != psutil.STATUS_ZOMBIE:
            if done.wait(0.05):
                return
        with running(tmp_path, config, port=port):
            done.wait()

    with running(tmp_path, config, port=port) as service:
        restarter = Thread(target=start_again, args=(psutil.Process(service.pid),))
        restarter.start()
        try:
            java.run("FaultCases", KILLED, pid=service.pid, **subject.arguments(tmp_path, service.url))
        finally:
            done.set()
            restarter.join()


# A partition's state in memory equals a map, in every version that still exists.

SEEDED = {"randomChanges", "editsInTurns", "twoThreadsEditOneVersion", "smallCommits"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("inline", [True, False], ids=["values", "lengths"])
@pytest.mark.parametrize(("keys", "rounds"), [(3, 60), (40, 80), (1_500, 12)])
def test_every_version_equals_a_map(java: Java, keys: int, rounds: int, inline: bool, seed: int) -> None:
    java.run("EntriesCases", "randomChanges", keys=keys, rounds=rounds, inline=inline, value_max=60, seed=seed)


def test_every_version_equals_a_map_after_compaction(java: Java) -> None:
    assert java.run("EntriesCases", "randomChanges", keys=30, rounds=80, inline=True, value_max=5_000, seed=0) >= 5
    assert java.run("EntriesCases", "randomChanges", keys=1_500, rounds=30, inline=False, value_max=0, seed=0) >= 3


@pytest.mark.parametrize("seed", range(4))
def test_concurrent_edits_are_isolated(java: Java, seed: int) -> None:
    assert java.run("EntriesCases", "editsInTurns", seed=seed) >= 100
    java.run("EntriesCases", "twoThreadsEditOneVersion", seed=seed)


@pytest.mark.parametrize("zombies", [False, True])
def test_many_small_commits_need_little_memory(java: Java, zombies: bool) -> None:
    assert java.run("EntriesCases", "smallCommits", zombies=zombies) < 300_000


@pytest.mark.parametrize("case", [name for name in names("EntriesCases") if name not in SEEDED])
def test_entries(java: Java, case: str) -> None:
    java.run("EntriesCases", case)
