"""One process for all Java cases, the reference results of queries, and settings of programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_client.state import java as cases_in_java
from spark_client.state.providers import SESSION
from spark_client.state.shape_runs import Oracle
from spark_client.state.suite import arguments, state_service

__all__ = ["arguments", "java", "state_service"]


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cases_in_java.Java]:
    """Runs a case: `java.run("SomeCases", "method", name=…)`."""
    with cases_in_java.java(tmp_path_factory.mktemp("java")) as runner:
        yield runner


@pytest.fixture
def small_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure Spark for few rows in the programs that a test starts, which have no such settings."""
    (tmp_path / "conf").mkdir()
    lines = [f"{name} {setting}" for name, setting in {**SESSION, "spark.ui.enabled": "false"}.items()]
    (tmp_path / "conf" / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """The results of the shapes with Spark's own provider."""
    return Oracle(tmp_path_factory.mktemp("oracle"))
