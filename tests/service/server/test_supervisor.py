"""The supervisor's check of its workers."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tableside.server.supervisor import STARTUP_MAX_S, Worker


def started(age_s: float, *, alive: bool, answers: bool) -> Worker:
    """Return a worker of some age without starting a process."""
    worker = cast("Any", Worker.__new__(Worker))
    worker.config = SimpleNamespace(timeout_worker_healthcheck=5)
    worker.process = SimpleNamespace(is_alive=lambda: alive)
    worker.ping = lambda timeout: answers
    worker.started_at = time.monotonic() - age_s
    return cast("Worker", worker)


@pytest.mark.parametrize("age_s", [0, STARTUP_MAX_S + 1])
def test_a_worker_that_has_died_is_not_healthy(age_s: float) -> None:
    assert not started(age_s, alive=False, answers=True).is_healthy()


def test_a_worker_may_leave_health_checks_unanswered_only_while_it_starts() -> None:
    assert started(0, alive=True, answers=False).is_healthy()
    assert started(STARTUP_MAX_S + 1, alive=True, answers=True).is_healthy()
    assert not started(STARTUP_MAX_S + 1, alive=True, answers=False).is_healthy()
