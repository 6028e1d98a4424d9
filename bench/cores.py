"""Which processes take how much of the cores: the one that is compared, the store's server, the clients."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Self

import psutil

TICK_S = 0.01
"""How finely the kernel counts the time of other processes."""


@dataclass(frozen=True)
class Cores:
    """How many cores were busy on average, by what was busy: `own` is what is compared, service or driver."""

    own: float
    server: float
    clients: float

    @property
    def all(self) -> float:
        """Return how many cores were busy with any of them."""
        return self.own + self.server + self.clients

    @classmethod
    def median(cls, several: Sequence[Self]) -> Self:
        """Return the medians."""
        return cls(*(median(getattr(cores, each.name) for cores in several) for each in fields(cls)))


@dataclass(frozen=True)
class Spent:
    """Seconds of CPU so far: of this process with the load generators that it has waited for, the service, the server.

    The server is whatever else this process has started and not waited for.
    """

    at: float
    here: float
    service: float
    server: float

    @classmethod
    def now(cls, service: int) -> Self:
        """Look at the clocks of all; `service` is a process id."""
        children = {child.pid: _seconds(child) for child in psutil.Process().children(recursive=True)}
        waited_for = getrusage(RUSAGE_CHILDREN)
        here = time.process_time() + waited_for.ru_utime + waited_for.ru_stime
        return cls(time.perf_counter(), here, children.pop(service), sum(children.values()))

    def cores_since(self, earlier: Self, *, direct: bool) -> Cores:
        """Return what was busy since then; `direct` says that this process itself is what is compared.

        What is compared took one tick of the clock at least.
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
