"""Runs streaming queries to their end, and kills their driver, its executors, their workers and the service.

Kills happen in order, in equal shares of the micro-batches. The query that is furthest ahead determines the
micro-batch, so that every kill disturbs every query.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spark_client.driver_process import Checkpoint, Driver, Notes, kill
from support.restarted_service import RestartedService

LOOK_INTERVAL_S = 0.02
STEP_MAX_S = 300.0
AWAY_MAX_S = 1.0
DELAY_MAX_S = 0.6
FALLS_MAX = 5
LOG_CHARACTERS = 4000

PROGRAM = Path(__file__).with_name("exactly_once_job.py")


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
    runs: int = 0
    driver: Driver | None = None
    """None between a kill of the driver and its next start."""

    def run(self, targets: Sequence[str], micro_batches: int) -> None:
        """Kill processes in the given order, then run the queries to their end undisturbed."""
        try:
            for number, target in enumerate(targets):
                if self.driver is None:
                    self._start(rough=True)
                self._wait_for(1 + number * (micro_batches - 3) // len(targets), target)
                self._deal(target)
            self._stop()
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
        self.runs += 1
        (self.directory / f"run-{self.runs}").mkdir(parents=True)
        self.driver = Driver(PROGRAM, self.argument(self.runs, rough), self.directory / f"run-{self.runs}.log")

    def _stop(self) -> None:
        if self.driver is not None:
            self.driver.kill()
            self.driver = None

    def _wait_for(self, batch: int, target: str) -> None:
        """Wait for a micro-batch, and then a while, or for a driver until one of its tasks has sent its rows."""
        self._wait(lambda: self._is_due(batch, sent=target == "driver"), f"micro-batch {batch} to kill the {target}")
        if target != "driver":
            time.sleep(self.dice.uniform(0, DELAY_MAX_S))

    def _is_due(self, batch: int, *, sent: bool) -> bool:
        code = self._driver.ended
        assert code != 0, f"the queries ended before micro-batch {batch}"
        if code is not None:
            self._restart_failed_query()
        if self._furthest < batch:
            return False
        notes = self.notes.of(self.runs, "sent" if sent else "begun")
        return bool(notes) and (not sent or notes[-1]["batch"] > self.checkpoints[notes[-1]["table"]].committed)

    @property
    def _furthest(self) -> int:
        return max(checkpoint.planned for checkpoint in self.checkpoints.values())

    def _restart_failed_query(self) -> None:
        """Restart a query that failed because a dependency was unavailable for too long, like a supervisor."""
        self.dealt["fell"] += 1
        assert self.dealt["fell"] <= FALLS_MAX, f"the driver falls again and again:\n{self._end_of_log()}"
        self._stop()
        self._start(rough=True)

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        seen, until = [-1], time.monotonic() + STEP_MAX_S
        while not is_so():
            done = [checkpoint.committed for checkpoint in self.checkpoints.values()]
            if done != seen:
                seen, until = done, time.monotonic() + STEP_MAX_S
            assert time.monotonic() < until, (
                f"no micro-batch for {STEP_MAX_S} s, waiting for {what}:\n{self._end_of_log()}"
            )
            time.sleep(LOOK_INTERVAL_S)

    def _deal(self, target: str) -> None:
        match target:
            case "driver":
                self._stop()
            case "service":
                self.service.kill_and_restart(self.dice.uniform(0, AWAY_MAX_S))
            case "executor":
                self._kill_one_of(self._driver.executors, target)
            case "python worker":
                self._kill_one_of(self._driver.python_workers, target)
            case _:
                raise ValueError(target)
        self.dealt[target] += 1
        print(f"{time.strftime('%H:%M:%S')} run {self.runs}: {target} killed at {self._furthest}", flush=True)

    def _kill_one_of(self, found: Callable[[], list[int]], what: str) -> None:
        def killed() -> bool:
            pids = sorted(found())
            return bool(pids) and kill(self.dice.choice(pids))

        self._wait(killed, f"a process to kill, {what}")

    def _end_of_log(self) -> str:
        return self._driver.log.read_text(errors="replace")[-LOG_CHARACTERS:]
