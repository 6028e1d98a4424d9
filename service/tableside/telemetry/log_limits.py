"""So many lines a second from each place in the source, whoever causes them: callers, or a store that fails.

What a line says does not count, so that what callers choose makes no place its own. Knows nothing of how lines look.
"""

from collections import Counter
from collections.abc import Callable

Place = tuple[str, int]
"""A file and a line in it."""

LINES_PER_S_MAX = 20
WINDOW_S = 1.0


class Flood:
    """Counts lines by their places, for one thread at a time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self._lines: Counter[Place] = Counter()

    def passes(self, place: Place) -> bool:
        """Whether one more line from there may be written in this second; if not, it is counted."""
        self._lines[place] += 1
        return self._lines[place] <= LINES_PER_S_MAX

    def left_out(self) -> dict[Place, int]:
        """Return what a second left out that is over, once; mostly nothing."""
        now = self._monotonic()
        if now - self._began < WINDOW_S:
            return {}
        lines, self._lines, self._began = self._lines, Counter(), now
        return {place: count - LINES_PER_S_MAX for place, count in lines.items() if count > LINES_PER_S_MAX}
