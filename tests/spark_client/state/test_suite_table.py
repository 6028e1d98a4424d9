"""The records of a state in its table: when they are written and removed, and the effects of damage."""

from typing import Any

import pytest

from spark_client.state.java import Java, names
from spark_client.state.suite import FETCHING, HDFS, IN_MEMORY, TABLESIDE

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

OF_ANY_PROVIDER = [
    "theRetainedVersionsStayLoadable",
    "aSnapshotChangesNothing",
    "maintenanceDoesNotDisturbWhatIsOpen",
]
OF_OURS = [case for case in names("MaintenanceCases") if case not in OF_ANY_PROVIDER]


@pytest.mark.parametrize("case", OF_ANY_PROVIDER)
@pytest.mark.parametrize("told", [HDFS, *TABLESIDE], ids=str, indirect=True)
def test_maintenance_of_any_provider(java: Java, told: dict[str, Any], case: str) -> None:
    java.run("MaintenanceCases", case, **told)


@pytest.mark.parametrize("case", OF_OURS)
@pytest.mark.parametrize("told", TABLESIDE, ids=str, indirect=True)
def test_what_is_written_and_removed(java: Java, told: dict[str, Any], case: str) -> None:
    java.run("MaintenanceCases", case, **told)


@pytest.mark.parametrize("case", names("DamageCases"))
@pytest.mark.parametrize("told", [IN_MEMORY[1], FETCHING[0]], ids=str, indirect=True)
def test_what_is_missing_or_damaged(java: Java, told: dict[str, Any], case: str) -> None:
    java.run("DamageCases", case, **told)
