"""Spark's requirements of any state store provider: Tableside's, and Spark's two, which validate the cases."""

from typing import Any

import pytest

from spark_client.state.java import Java, names
from spark_client.state.suite import HDFS, ROCKSDB, TABLESIDE

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

CLASSES = ["ReadWriteCases", "IterationCases", "RefusalCases"]
CASES = [(class_name, case) for class_name in CLASSES for case in names(class_name)]
ONE_STORE_AT_A_TIME = [
    "aStoreSeesItsOwnWrites",
    "anotherProviderContinues",
    "putRemoveAndPutOfOneKey",
    "aCommitWithoutUpdatesMakesAVersion",
    "noSuchVersionCannotBeLoaded",
    "aReadStoreIsUpgradedToAWriteStore",
]
"""Cases that Spark's RocksDB provider supports: they open one store at a time."""


@pytest.mark.parametrize(("class_name", "case"), CASES, ids=[case for _, case in CASES])
@pytest.mark.parametrize("arguments", [HDFS, *TABLESIDE], ids=str, indirect=True)
def test_a_provider(java: Java, arguments: dict[str, Any], class_name: str, case: str) -> None:
    java.run(class_name, case, **arguments)


@pytest.mark.parametrize("case", ONE_STORE_AT_A_TIME)
@pytest.mark.parametrize("arguments", [ROCKSDB], ids=str, indirect=True)
def test_a_provider_with_identities_of_versions(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("ReadWriteCases", case, **arguments)
