"""Remembers that a store rejected its last writes, so that readiness probes need not write to find out."""

import time
from collections.abc import Callable, Sequence

from .batch import Results
from .errors import StoreUnavailable, WritesRejected
from .operations import Outcome, Written

REMEMBERED_S = 30.0
"""How long a rejected write is reported. A later write shows whether the store accepts writes again."""


class WriteHealth:
    """Whether a backend accepts writes, as far as the outcomes of its tables show. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rejected_at: float | None = None

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Note the outcomes of a call with writes: any success clears earlier rejections."""
        if isinstance(outcomes, Results):
            if len(outcomes.failed) < len(outcomes):
                self._rejected_at = None
                return
            outcomes = [*outcomes.failed.values()]
        rejected = False
        for outcome in outcomes:
            if type(outcome) is Written:
                self._rejected_at = None
                return
            rejected = rejected or type(outcome) is WritesRejected
        if rejected:
            self._rejected_at = self._clock()

    def check(self) -> None:
        """Raise StoreUnavailable if the last writes were rejected, at most REMEMBERED_S ago."""
        if self._rejected_at is not None and self._clock() - self._rejected_at < REMEMBERED_S:
            raise StoreUnavailable("the store rejected the last writes: its disk is full, or it is read-only")
