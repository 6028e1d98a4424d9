"""The shared suite on the Redis store with Valkey, a single server and a cluster."""

from collections.abc import Iterator

import pytest

from contract import Basics, Expiry, KeysAndValues, Orders, Preconditions, Scans, Tokens, Updates
from servers.redis import ensure_valkey, redis
from service.stores.test_redis import OnRedis

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis(tmp_path_factory.mktemp("valkey"), program=ensure_valkey()) as url:
        yield url.replace("redis://", "valkey://")


class OnValkey(OnRedis):
    @pytest.fixture(autouse=True)
    def _server(self, valkey_url: str) -> None:
        self.url = valkey_url


class TestValkey(OnValkey, Basics, Tokens):
    """Calls with and without Lua scripts."""


@pytest.mark.daily
class TestTheRestOnValkey(OnValkey, KeysAndValues, Updates, Preconditions, Expiry, Orders, Scans):
    """The other parts of the contract."""
