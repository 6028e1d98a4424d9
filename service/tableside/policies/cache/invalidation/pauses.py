"""How long to wait before a connection is made again."""

import random

PAUSE_S = 0.05
PAUSE_MAX_S = 1.0


class Pauses:
    """Grow from failure to failure, and begin again after a success."""

    def __init__(self) -> None:
        self._failures = 0

    def succeeded(self) -> None:
        """Begin again."""
        self._failures = 0

    def next_s(self) -> float:
        """Return the next pause in seconds: none after the first failure, later a random one."""
        self._failures += 1
        if self._failures == 1:
            return 0.0
        longest_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(self._failures, 16))
        return random.uniform(longest_s / 2, longest_s)  # noqa: S311  # no secret
