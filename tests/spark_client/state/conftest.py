"""What runs the cases in Java, one process for all of them, and what queries are compared with."""

from collections.abc import Iterator

import pytest

from spark_client.state import java as cases_in_java
from spark_client.state.oracle import Oracle
from spark_client.state.suite import state_service, told

__all__ = ["java", "state_service", "told"]


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cases_in_java.Java]:
    """Runs a case: `java.run("SomeCases", "method", name=…)`."""
    with cases_in_java.java(tmp_path_factory.mktemp("java")) as runner:
        yield runner


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """What Spark's own provider makes of the shapes."""
    return Oracle(tmp_path_factory.mktemp("oracle"))
