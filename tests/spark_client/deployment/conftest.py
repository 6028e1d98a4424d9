"""One cluster for all that is tried on it."""

from collections.abc import Iterator

import pytest

from spark_client.deployment.standalone import Cluster, standalone


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    with standalone(tmp_path_factory.mktemp("cluster")) as started:
        yield started
