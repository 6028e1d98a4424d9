"""The records of a state in its table: when they are written and removed, and the effects of damage."""

from typing import Any

import pytest

from spark_client.state.java import Java, names
from spark_client.state.suite import FETCHING, HDFS, IN_MEMORY, TABLESIDE

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

OF_ANY_PROVIDER = [
    "theRetainedVersionsStayLoadable",
    "aSnapshotChangesNothing",
    "maintenanceDoesNotDisturbOpenStores",
]
OF_OURS = [case for case in names("MaintenanceCases") if case not in OF_ANY_PROVIDER]


@pytest.mark.parametrize("case", OF_ANY_PROVIDER)
@pytest.mark.parametrize("arguments", [HDFS, *TABLESIDE], ids=str, indirect=True)
def test_maintenance_of_any_provider(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("MaintenanceCases", case, **arguments)


@pytest.mark.parametrize("case", OF_OURS)
@pytest.mark.parametrize("arguments", TABLESIDE, ids=str, indirect=True)
def test_written_and_removed_records(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("MaintenanceCases", case, **arguments)


@pytest.mark.parametrize("case", names("DamageCases"))
@pytest.mark.parametrize("arguments", [IN_MEMORY[1], FETCHING[0]], ids=str, indirect=True)
def test_missing_and_damaged_records(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("DamageCases", case, **arguments)
