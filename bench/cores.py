"""CPU use of the measured process, the store's server and the clients."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Self

import psutil

TICK_S = 0.01
"""The kernel's resolution of the CPU time of other processes."""


@dataclass(frozen=True)
class Cores:
    """The average number of busy cores. `own` is the measured process (service or driver)."""

    own: float
    server: float
    clients: float

    @property
    def all(self) -> float:
        """Return the number of cores that were busy with any of the processes."""
        return self.own + self.server + self.clients

    @classmethod
    def median(cls, several: Sequence[Self]) -> Self:
        """Return the medians."""
        return cls(*(median(getattr(cores, each.name) for cores in several) for each in fields(cls)))


@dataclass(frozen=True)
class Spent:
    """CPU seconds so far: of this process and the load generators that it has waited for, of a service with its child
    processes, and of the store's server, which is any other child process.
    """

    at: float
    here: float
    service: float
    server: float

    @classmethod
    def now(cls, service: int | None) -> Self:
        """Read the CPU times. `service` is a process id."""
        children = {child.pid: _seconds(child) for child in psutil.Process().children(recursive=True)}
        own = [service, *(child.pid for child in psutil.Process(service).children(recursive=True))] if service else []
        of_service = sum(children.get(pid, 0.0) for pid in own)
        waited_for = getrusage(RUSAGE_CHILDREN)
        here = time.process_time() + waited_for.ru_utime + waited_for.ru_stime
        return cls(time.perf_counter(), here, of_service, sum(children.values()) - of_service)

    def cores_since(self, earlier: Self, *, direct: bool) -> Cores:
        """Return the CPU use since `earlier`. With `direct`, this process is the measured one.

        The measured process counts for at least one tick.
        """
        elapsed = self.at - earlier.at
        here, service, server = self.here - earlier.here, self.service - earlier.service, self.server - earlier.server
        own, clients = (here, 0.0) if direct else (service, here)
        return Cores(max(own, TICK_S) / elapsed, server / elapsed, clients / elapsed)


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
