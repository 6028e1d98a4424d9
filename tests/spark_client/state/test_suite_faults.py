"""Cases that Spark's own suite lacks: network faults between store and table, and late attempts."""

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from servers.process import free_port
from spark_client.state.java import Java, names
from spark_client.state.suite import FETCHING, IN_MEMORY, KEPT_ON_DISK, TABLESIDE, Subject
from support.running import running

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

KILLED = "theServiceIsKilledInTheMiddleOfACommit"
FAULTS = [case for case in names("FaultCases") if case != KILLED]


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.parametrize("arguments", [IN_MEMORY[0], FETCHING[1]], ids=str, indirect=True)
def test_network_faults(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("FaultCases", case, **arguments)


@pytest.mark.parametrize("case", names("ZombieCases"))
@pytest.mark.parametrize("arguments", TABLESIDE, ids=str, indirect=True)
def test_late_and_repeated_attempts(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("ZombieCases", case, **arguments)


@pytest.mark.parametrize("case", names("CutOffCases"))
@pytest.mark.parametrize("arguments", TABLESIDE, ids=str, indirect=True)
def test_interruptions_and_concurrency(java: Java, arguments: dict[str, Any], case: str) -> None:
    java.run("CutOffCases", case, **arguments)


@pytest.mark.parametrize("subject", [IN_MEMORY[0], pytest.param(FETCHING[1], marks=pytest.mark.full)], ids=str)
def test_a_service_killed_during_a_commit_loses_nothing(java: Java, subject: Subject, tmp_path: Path) -> None:
    config, port, done = tmp_path / "config.yaml", free_port(), Event()
    config.write_text(KEPT_ON_DISK)
    with running(tmp_path, config, port=port) as service:
        restarter = Thread(target=start_again, args=(service.pid, tmp_path, config, port, done))
        restarter.start()
        try:
            java.run("FaultCases", KILLED, pid=service.pid, **subject.arguments(tmp_path, service.url))
        finally:
            done.set()
            restarter.join()


def start_again(pid: int, directory: Path, config: Path, port: int, done: Event) -> None:
    """Restart the service after it has been killed, and keep it running until the test ends."""
    while is_running(pid):
        if done.wait(0.05):
            return
    with running(directory, config, port=port):
        done.wait()


def is_running(pid: int) -> bool:
    """Return whether a process still runs. A zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
