"""Comparisons whose variants are measured in turn, so that disturbances of the machine affect all of them."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from .report import Result, group

Rate: TypeAlias = Callable[[], float]
"""Measures once, and returns a number per second."""

PIPES = "TABLESIDE_BENCH_PIPES"
"""The environment variable with two file descriptors: to wait for a turn, and to hand it over."""


@dataclass(frozen=True)
class Comparison:
    """Variants of one task, the baseline first. `ratios_min` are the lowest acceptable ratios to the baseline."""

    title: str
    unit: str
    ways: Mapping[str, Rate]
    ratios_min: Mapping[str, float] = field(default_factory=dict)


def measured(comparisons: Sequence[Comparison], rounds: int) -> list[Result]:
    """Measure all variants of all comparisons in turn, over several rounds, and return the medians."""
    rates: list[dict[str, list[float]]] = [{way: [] for way in comparison.ways} for comparison in comparisons]
    for _ in range(rounds):
        for comparison, of_comparison in zip(comparisons, rates, strict=True):
            for way, rate in comparison.ways.items():
                of_comparison[way].append(rate())
                hand_over()
    return [
        result
        for comparison, of_comparison in zip(comparisons, rates, strict=True)
        for result in group(
            comparison.title,
            comparison.unit,
            [(way, median(taken)) for way, taken in of_comparison.items()],
            comparison.ratios_min,
        )
    ]


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
