"""Tests of the servers that several processes of a run share."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from servers import shared
from servers.process import ServerFailed
from servers.shared import Connected, listening, servers

pytestmark = pytest.mark.server


def test_a_server_starts_once_for_all_and_ends_with_the_run() -> None:
    with servers() as owned, listening(owned) as (path, key):
        with ThreadPoolExecutor(3) as users:
            addresses = set(users.map(lambda _: Connected(path, key).address("redis"), range(3)))
        assert addresses == {owned.address("redis")}
        children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
        [process] = [child for child in children if _port(addresses) in " ".join(child.cmdline())]
    assert not process.is_running()


def test_a_server_that_does_not_start_fails_every_test_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(directory: Path) -> None:
        raise ServerFailed("broken ended with 1")

    monkeypatch.setattr(shared, "SERVERS", {"broken": broken})
    with servers() as owned, listening(owned) as (path, key):
        for _ in range(2):
            with pytest.raises(ServerFailed, match="broken ended with 1"):
                Connected(path, key).address("broken")


def _port(addresses: set[str | list[str]]) -> str:
    [address] = addresses
    assert isinstance(address, str)
    return address.split(":")[2].split("/")[0]
