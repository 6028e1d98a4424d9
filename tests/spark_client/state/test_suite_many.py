"""Stores as executors use them, memory and metrics, many partitions, large values, and random steps."""

from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from spark_client.state.java import Java, names
from spark_client.state.suite import FETCHING, HDFS, IN_MEMORY, ON_DISK, TABLESIDE

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

OF_OURS = ["metricsOfACommitAreReportedOnce", "allocatedPerByteOfALongValue", "postponedMaintenanceUnloadsNoStore"]
OF_ANY_PROVIDER = [
    (class_name, case)
    for class_name in ("SharingCases", "MetricCases", "RegistryCases")
    for case in names(class_name)
    if case not in OF_OURS
]
SEQUENCES, SEQUENCES_FULL = 8, 50
OF_SPARKS_OWN = 5


@pytest.mark.parametrize(("class_name", "case"), OF_ANY_PROVIDER, ids=[case for _, case in OF_ANY_PROVIDER])
@pytest.mark.parametrize("arguments", [HDFS, IN_MEMORY[0], FETCHING[1]], ids=str, indirect=True)
def test_isolation_metrics_and_registry(java: Java, arguments: dict[str, Any], class_name: str, case: str) -> None:
    java.run(class_name, case, **arguments)


@pytest.mark.parametrize("case", names("MemoryCases"))
@pytest.mark.parametrize("arguments", TABLESIDE, ids=str, indirect=True)
def test_reads_from_memory_and_from_the_table(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("MemoryCases", case, **arguments)


@pytest.mark.parametrize("case", names("ManifestCases"))
def test_manifests(java: Java, case: str) -> None:
    java.run("ManifestCases", case)


@pytest.mark.parametrize("case", names("LocalDiskCases"))
def test_blocks_on_the_local_disk(java: Java, tmp_path: Path, case: str) -> None:
    java.run("LocalDiskCases", case, directory=str(tmp_path))


@pytest.mark.parametrize("case", names("DiskCases"))
@pytest.mark.parametrize("arguments", [ON_DISK], ids=str, indirect=True)
def test_copies_on_the_local_disk(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("DiskCases", case, **arguments)


@pytest.mark.parametrize("arguments", TABLESIDE, ids=str, indirect=True)
def test_metrics_of_a_commit(java: Java, arguments: dict[str, Any]) -> None:
    java.run("MetricCases", "metricsOfACommitAreReportedOnce", **arguments)


@pytest.mark.parametrize("arguments", [IN_MEMORY[1], FETCHING[0]], ids=str, indirect=True)
def test_a_long_value_is_copied_few_times(java: Java, arguments: dict[str, Any]) -> None:
    assert java.run("MetricCases", "allocatedPerByteOfALongValue", **arguments) < 4


@pytest.mark.parametrize("arguments", [IN_MEMORY[0], FETCHING[1]], ids=str, indirect=True)
def test_postponed_maintenance_unloads_no_store(java: Java, arguments: dict[str, Any]) -> None:
    java.run("RegistryCases", "postponedMaintenanceUnloadsNoStore", **arguments)


@pytest.mark.parametrize("arguments", [HDFS, *TABLESIDE], ids=str, indirect=True)
def test_random_steps(java: Java, arguments: dict[str, Any], request: pytest.FixtureRequest, full: bool) -> None:
    ours = SEQUENCES_FULL if full else SEQUENCES
    seed = crc32(request.node.name.encode())  # each subject has a different seed, the same in every run
    java.run(
        "ModelCases", "randomSteps", seed=seed, sequences=ours if arguments["settings"] else OF_SPARKS_OWN, **arguments
    )


@pytest.mark.parametrize("arguments", [FETCHING[0]], ids=str, indirect=True)
def test_a_table_with_a_key_of_one_string(java: Java, arguments: dict[str, Any]) -> None:
    arguments["settings"]["table"] = "plain"
    java.run("ModelCases", "randomSteps", seed=1_000, sequences=5, **arguments)
