"""The cluster that all tests of the deployment share."""

from collections.abc import Iterator

import pytest

from spark_client.deployment.standalone import Cluster, standalone


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Iterator[Cluster]:
    """A master and one worker, two in a full run."""
    with standalone(tmp_path_factory.mktemp("cluster"), workers=2 if full else 1) as started:
        yield started
