"""Runs streaming queries to their end, and kills their driver, its executors, their workers and the service.

Kills happen in order, each at a random time during or after a random micro-batch. The query that is furthest ahead
determines the micro-batch, so that every kill disturbs every query.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_client.driver_process import Driver, kill
from spark_client.stream_notes import Checkpoint, Note, Notes
from support.restarted_service import RestartedService

LOOK_INTERVAL_S = 0.02
STEP_MAX_S = 300.0
AWAY_MAX_S = 1.0
DELAY_MAX_S = 0.6
FALLS_MAX = 5
LOG_CHARACTERS = 4000

PROGRAM = Path(__file__).with_name("exactly_once_job.py")


@dataclass(frozen=True, order=True)
class PlannedKill:
    """A kill: its target, and its time after the plan of a micro-batch or, with `sent`, when a task of it has sent."""

    batch: int
    delay_s: float
    what: str
    sent: bool


@dataclass(frozen=True)
class Size:
    """The numbers of events and micro-batches, and the number of kills of each target."""

    events: int
    micro_batches: int
    drivers: int
    services: int
    executors: int
    python_workers: int


def drawn(size: Size, dice: random.Random) -> list[PlannedKill]:
    """Return random kills in order. The last one hits a driver. Every second driver kill, from the first, is `sent`."""
    whats = [
        *["service"] * size.services,
        *["executor"] * size.executors,
        *["python worker"] * size.python_workers,
    ]
    last = size.micro_batches - 3
    kills = [PlannedKill(dice.randint(1, last - 1), dice.uniform(0, DELAY_MAX_S), what, sent=False) for what in whats]
    for number, batch in enumerate([*(dice.randint(1, last - 1) for _ in range(size.drivers - 1)), last]):
        kills.append(PlannedKill(batch, dice.uniform(0, DELAY_MAX_S), "driver", sent=number % 2 == 0))
    return sorted(kills)


@dataclass(frozen=True)
class InterruptedBatch:
    """A micro-batch that was running when the driver was killed: its stream, its run and its end offsets."""

    table: str
    batch: int
    run: int
    offsets: Any


@dataclass
class Disturbed:
    """Runs the queries: starts their driver, kills processes, and counts the kills."""

    argument: Callable[[int, bool], str]
    """Returns the program's argument for a run, from the run's number and whether tasks fail in it."""
    directory: Path
    service: RestartedService
    notes: Notes
    checkpoints: Mapping[str, Checkpoint]
    """The checkpoints of the queries, by the names of their tables."""
    dice: random.Random
    dealt: Counter[str] = field(default_factory=Counter)
    cut: list[InterruptedBatch] = field(default_factory=list)
    """The micro-batches that were running when the driver was killed."""
    runs: int = 0
    driver: Driver | None = None
    """None between a kill of the driver and its next start."""

    def run(self, kills: Sequence[PlannedKill]) -> None:
        """Kill processes in the given order, then run the queries to their end undisturbed."""
        try:
            for planned_kill in kills:
                if self.driver is None:
                    self._start(rough=True)
                self._wait_for(planned_kill)
                self._deal(planned_kill.what)
            self._start(rough=False)
            self._wait(lambda: self._driver.ended is not None, "the end")
            assert self._driver.ended == 0, self._end_of_log()
        finally:
            self._stop()

    @property
    def _driver(self) -> Driver:
        assert self.driver is not None
        return self.driver

    def _start(self, *, rough: bool) -> None:
        assert self.driver is None, "two drivers of one checkpoint"
        self.runs += 1
        directory = self.directory / f"run-{self.runs}"
        directory.mkdir(parents=True)
        self.driver = Driver(PROGRAM, self.argument(self.runs, rough), self.directory / f"run-{self.runs}.log")

    def _stop(self) -> None:
        if self.driver is not None:
            self.driver.kill()
            self.driver = None

    def _wait_for(self, planned_kill: PlannedKill) -> None:
        self._wait(lambda: self._is_due(planned_kill), str(planned_kill))
        if not planned_kill.sent:
            time.sleep(planned_kill.delay_s)

    def _is_due(self, planned_kill: PlannedKill) -> bool:
        code = self._driver.ended
        assert code != 0, f"the queries ended before {planned_kill}"
        if code is not None:
            self._restart_failed_query()
        if not planned_kill.sent:
            return self._furthest >= planned_kill.batch and bool(self.notes.of(self.runs, "begun"))
        sent = self.notes.of(self.runs, "sent")
        return self._furthest >= planned_kill.batch and bool(sent) and self._is_under_way(sent[-1])

    def _is_under_way(self, note: Note) -> bool:
        return bool(note["batch"] > self.checkpoints[note["table"]].committed)

    @property
    def _furthest(self) -> int:
        return max(checkpoint.planned for checkpoint in self.checkpoints.values())

    def _restart_failed_query(self) -> None:
        """Restart a query that failed because a dependency was unavailable for too long, like a supervisor."""
        self.dealt["fell"] += 1
        self._print(f"the driver fell by itself:\n{self._end_of_log()}")
        assert self.dealt["fell"] <= FALLS_MAX, "the driver falls again and again"
        self._stop()
        self._start(rough=True)

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        seen, until = [-1], time.monotonic() + STEP_MAX_S
        while not is_so():
            at = [self.runs, *(checkpoint.committed for checkpoint in self.checkpoints.values())]
            if at != seen:
                seen, until = at, time.monotonic() + STEP_MAX_S
                self._print(f"micro-batches {at[1:]} are done, waiting for {what}")
            assert time.monotonic() < until, f"no micro-batch for {STEP_MAX_S} s:\n{self._end_of_log()}"
            time.sleep(LOOK_INTERVAL_S)

    def _deal(self, what: str) -> None:
        match what:
            case "driver":
                self._kill_driver()
            case "service":
                self.service.kill_and_restart(self.dice.uniform(0, AWAY_MAX_S))
            case "executor":
                self._kill_one_of(self._driver.executors, what)
            case "python worker":
                self._kill_one_of(self._driver.python_workers, what)
            case _:
                raise ValueError(what)
        self.dealt[what] += 1
        self._print(f"{what} killed at micro-batch {self._furthest}")

    def _kill_driver(self) -> None:
        self._stop()
        for table, checkpoint in self.checkpoints.items():
            planned = checkpoint.planned
            if planned > checkpoint.committed:
                self.cut.append(InterruptedBatch(table, planned, self.runs, checkpoint.offsets(planned)))

    def _kill_one_of(self, found: Callable[[], list[int]], what: str) -> None:
        def killed() -> bool:
            pids = sorted(found())
            return bool(pids) and kill(self.dice.choice(pids))

        self._wait(killed, f"a process to kill, {what}")

    def _print(self, words: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} run {self.runs}: {words}", flush=True)

    def _end_of_log(self) -> str:
        return self._driver.log.read_text(errors="replace")[-LOG_CHARACTERS:]
