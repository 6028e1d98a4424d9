"""Fixtures that every folder uses: a running service and the servers of the remote stores."""

import gc
import os
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from support.released import released
from support.running import Service, running

__all__ = ["released", "service"]

# The store contract has assertions outside test files.
pytest.register_assert_rewrite("contract")

pytest_plugins = ["plugins.scheduling", "plugins.selection", "servers.fixtures"]

# jsonschema would compile ten grammars on import, which takes seconds, for a format that no schema here uses.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment] # an import raises ImportError, which is expected

# Spark's workers use the Python that runs the tests.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# On a busy machine, generating an example may take seconds.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("tests"), max_examples=10)
settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage in the cases, which grow to a million objects and live until the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on RocksDB that creates tables on their first write. Each test uses different table names."""
    with running(tmp_path_factory.mktemp("service")) as started:
        yield started
