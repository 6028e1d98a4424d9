"""The shared suite on the Redis store with Valkey, a single server and a cluster."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from contract import (
    Basics,
    Expiry,
    KeysAndValues,
    Orders,
    Preconditions,
    Scans,
    StoreContract,
    Time,
    Tokens,
    Updates,
)
from contract.opening import Opens
from servers.redis import ensure_valkey, redis, redis_cluster
from support.redis_tables import table
from tableside.core.store import Store, TableSpec

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis(tmp_path_factory.mktemp("valkey"), program=ensure_valkey()) as url:
        yield url.replace("redis://", "valkey://")


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_cluster(tmp_path_factory.mktemp("valkey"), program=ensure_valkey()) as urls:
        yield urls[0].replace("redis://", "valkey://")


class OnValkey(Opens):
    clock_can_be_set = False
    splits_have_several_parts = False

    @pytest.fixture(autouse=True)
    def _server(self, valkey_url: str) -> None:
        self.url = valkey_url

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return table(self.url, spec)


class TestValkey(OnValkey, Basics, Tokens):
    """Calls with and without Lua scripts."""


@pytest.mark.daily
class TestTheRestOnValkey(OnValkey, KeysAndValues, Updates, Preconditions, Expiry, Orders, Scans):
    """The other parts of the contract."""


@pytest.mark.daily
class TestValkeyCluster(StoreContract):
    clock_can_be_set = False
    partitions_are_sorted = False

    @pytest.fixture(autouse=True)
    def _server(self, cluster_url: str) -> None:
        self.url = cluster_url

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return table(self.url, spec, cluster=True)
