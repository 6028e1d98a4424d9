"""What tests share: a running service."""

from collections.abc import Iterator

import pytest

from running import Service, running


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on RocksDB that makes tables as they are written to; tests use table names of their own."""
    with running(tmp_path_factory.mktemp("service")) as started:
        yield started
