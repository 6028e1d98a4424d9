"""Stores as executors use them, memory and metrics, many partitions, large values, and random steps."""

from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from spark_client.state.java import Java, names
from spark_client.state.suite import FETCHING, HDFS, IN_MEMORY, ON_DISK, TABLESIDE

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

OF_OURS = ["whatACommitHasCostIsTold", "maintenanceThatIsPutOffUnloadsNoStore"]
OF_ANY_PROVIDER = [
    (class_name, case)
    for class_name in ("SharingCases", "MetricCases", "RegistryCases")
    for case in names(class_name)
    if case not in OF_OURS
]
SEQUENCES, SEQUENCES_FULL = 30, 50
OF_SPARKS_OWN = 5


@pytest.mark.parametrize(("class_name", "case"), OF_ANY_PROVIDER, ids=[case for _, case in OF_ANY_PROVIDER])
@pytest.mark.parametrize("told", [HDFS, IN_MEMORY[0], FETCHING[1]], ids=str, indirect=True)
def test_stores_beside_each_other_and_as_spark_holds_them(
    java: Java, told: dict[str, Any], class_name: str, case: str
) -> None:
    java.run(class_name, case, **told)


@pytest.mark.parametrize("case", names("MemoryCases"))
@pytest.mark.parametrize("told", TABLESIDE, ids=str, indirect=True)
def test_what_is_in_memory_and_what_is_asked_for(java: Java, told: dict[str, Any], case: str) -> None:
    java.run("MemoryCases", case, **told)


@pytest.mark.parametrize("case", names("LocalDiskCases"))
def test_blocks_on_the_local_disk(java: Java, tmp_path: Path, case: str) -> None:
    java.run("LocalDiskCases", case, directory=str(tmp_path))


@pytest.mark.parametrize("case", names("DiskCases"))
@pytest.mark.parametrize("told", [ON_DISK], ids=str, indirect=True)
def test_what_is_on_the_local_disk_is_not_asked_for(java: Java, told: dict[str, Any], case: str) -> None:
    java.run("DiskCases", case, **told)


@pytest.mark.parametrize("told", TABLESIDE, ids=str, indirect=True)
def test_what_a_commit_has_cost_is_told(java: Java, told: dict[str, Any]) -> None:
    java.run("MetricCases", "whatACommitHasCostIsTold", **told)


@pytest.mark.parametrize("told", [IN_MEMORY[0], FETCHING[1]], ids=str, indirect=True)
def test_maintenance_that_is_put_off_unloads_no_store(java: Java, told: dict[str, Any]) -> None:
    java.run("RegistryCases", "maintenanceThatIsPutOffUnloadsNoStore", **told)


@pytest.mark.parametrize("told", [HDFS, *TABLESIDE], ids=str, indirect=True)
def test_steps_drawn_by_lot(java: Java, told: dict[str, Any], request: pytest.FixtureRequest, full: bool) -> None:
    ours = SEQUENCES_FULL if full else SEQUENCES
    seed = crc32(request.node.name.encode())  # each subject has a different seed, the same in every run
    java.run("ModelCases", "stepsDrawnByLot", seed=seed, sequences=ours if told["settings"] else OF_SPARKS_OWN, **told)


@pytest.mark.parametrize("told", [IN_MEMORY[1], FETCHING[0]], ids=str, indirect=True)
def test_a_table_whose_key_is_one_string_will_do(java: Java, told: dict[str, Any]) -> None:
    told["settings"]["table"] = "plain"
    java.run("ModelCases", "stepsDrawnByLot", seed=1_000, sequences=5, **told)
