"""The log of readiness: one line when /readyz starts failing, and one when it recovers."""

import pytest

from service.telemetry.lines import logged
from support.served import connected, served
from tableside.core.errors import StoreUnavailable
from tableside.stores.memory import MemoryBackend


async def test_changes_of_readiness_are_logged_once_and_failed_probes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(backend: MemoryBackend) -> None:
        raise StoreUnavailable("no route to host")

    async with served(drain_s=0) as service, connected(service, 1) as [probe]:
        with logged(requests=1) as lines:
            assert (await probe.ask("GET", "/readyz")).status == 200
            for _ in range(2):
                with monkeypatch.context() as patch:
                    patch.setattr(MemoryBackend, "ping", unreachable)
                    assert [(await probe.ask("GET", "/readyz")).status for _ in range(3)] == [503] * 3
                assert [(await probe.ask("GET", "/readyz")).status for _ in range(3)] == [200] * 3
    seen = [(line["level"], line["event"]) for line in lines.all]
    assert seen == 2 * [("error", "not ready: no store can be reached"), ("info", "ready again")]
    assert lines.all[0]["stores"] == {"s": "no route to host"}
