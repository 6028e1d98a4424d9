"""Comparisons whose variants are measured in turn, so that disturbances of the machine affect all of them."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TypeAlias

from .cores import Cores, Spent
from .report import PerCore, Result, group

Rate: TypeAlias = Callable[[], float]
"""Measures once, and returns a number per second."""

PIPES = "TABLESIDE_BENCH_PIPES"
"""The environment variable with two file descriptors: to wait for a turn, and to hand it over."""


@dataclass(frozen=True)
class Sample:
    """One measurement."""

    per_second: float
    cores: Cores

    @property
    def per_cpu_second(self) -> float:
        """Return the rate per CPU second of the measured process."""
        return self.per_second / self.cores.own

    @property
    def per_cpu_second_of_all(self) -> float:
        """Return the rate per CPU second of all processes, including the store's server and the clients."""
        return self.per_second / self.cores.all


@dataclass(frozen=True)
class Comparison:
    """Variants of one task, the baseline first. `ratios_min` are the lowest acceptable ratios to the baseline.

    With `services`, CPU time is measured too: of the service with this process id, or of this process for variants
    that are not in it. `table` is the title of the printed table.
    """

    title: str
    unit: str
    ways: Mapping[str, Rate]
    ratios_min: Mapping[str, float] = field(default_factory=dict)
    services: Mapping[str, int] | None = None
    table: str = ""
    samples: dict[str, list[Sample]] = field(default_factory=dict, init=False)

    def measure(self) -> None:
        """Measure each variant once. Let the other checkout do the same after each of them."""
        for way, rate in self.ways.items():
            service = (self.services or {}).get(way)
            before = Spent.now(service)
            per_second = rate()
            cores = Spent.now(service).cores_since(before, direct=service is None)
            self.samples.setdefault(way, []).append(Sample(per_second, cores))
            hand_over()

    def results(self) -> list[Result]:
        """Return the medians of the rates, and of the ratios of each round."""
        medians = [(way, self._median(way, "per_second")) for way in self.ways]
        return [
            replace(
                result,
                ratio=self._ratio(result.way),
                table=self.table,
                rounds=[sample.per_second for sample in self.samples[result.way]],
                per_core=None if self.services is None else self._per_core(result.way),
            )
            for result in group(self.title, self.unit, medians, self.ratios_min)
        ]

    def _ratio(self, way: str) -> float:
        rounds = zip(self.samples[way], self.samples[next(iter(self.ways))], strict=True)
        return median(sample.per_second / baseline.per_second for sample, baseline in rounds)

    def _per_core(self, way: str) -> PerCore:
        own, of_all = (
            (self._median(way, name), self._median(next(iter(self.ways)), name))
            for name in ("per_cpu_second", "per_cpu_second_of_all")
        )
        cores = Cores.median([sample.cores for sample in self.samples[way]])
        return PerCore(own[0], own[0] / own[1], of_all[0] / of_all[1], cores)

    def _median(self, way: str, name: str) -> float:
        return float(median(getattr(sample, name) for sample in self.samples[way]))


def measured(comparisons: Sequence[Comparison], rounds: int, *, warm: bool = False) -> list[Result]:
    """Measure all variants of all comparisons in turn, over several rounds, and return the medians.

    With `warm`, a round before the others warms up.
    """
    for turn in range(rounds + warm):
        for comparison in comparisons:
            comparison.measure()
            if turn < warm:
                comparison.samples.clear()
    return [result for comparison in comparisons for result in comparison.results()]


def rates(ways: Mapping[str, Callable[[], object]], count: int) -> dict[str, Rate]:
    """Return the rates of ways that handle `count` rows or records."""
    return {way: partial(_rate, work, count) for way, work in ways.items()}


def _rate(work: Callable[[], object], count: int) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def hand_over() -> None:
    """Let the other checkout measure the same, and wait for the next turn (see `against`). Without one, do nothing."""
    if PIPES in os.environ:
        with suppress(BrokenPipeError):  # The other one has finished.
            os.write(_pipes()[1], b".")
        wait()


def wait() -> None:
    """Wait for the first turn."""
    if PIPES in os.environ:
        os.read(_pipes()[0], 1)


def _pipes() -> tuple[int, int]:
    incoming, outgoing = map(int, os.environ[PIPES].split())
    return incoming, outgoing
