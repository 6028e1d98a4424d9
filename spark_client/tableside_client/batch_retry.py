"""Retries of the operations of a batch by position, for batches in JSON and in Arrow."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tableside_client.calls import Call

Failures: TypeAlias = Mapping[int, Mapping[str, Any]]
"""Failed operations by position, in order: `code`, `detail`, `retriable`, `applied` and `retry_after_s`."""

Send: TypeAlias = Callable[[Sequence[int]], Call[Failures]]
"""Sends the operations at these positions once, keeps their outcomes, and returns their failures.

Permanent failures of operations that were certainly not applied may be left out.
"""

Pause: TypeAlias = Callable[[float | None, str], Call[bool]]
"""Waits before a retry, as `CallLimits.pause` does."""


def send_with_retries(
    count: int, send: Send, key: Callable[[int], Hashable], repeatable: Callable[[int], bool], pause: Pause
) -> Call[None]:
    """Send operations, and retry those that may still succeed until none is left or the attempts are used up.

    Args:
        count: The number of operations.
        send: Sends some of the operations once.
        key: The key of the operation at a position. Operations on one key keep their order.
        repeatable: Whether the operation at a position is safe to repeat although it may have been applied.
        pause: Waits before a retry. It is not called if the next attempt certainly differs.
    """
    positions: Sequence[int] = range(count)
    while True:
        failures = yield from send(positions)
        again = list(_sent_again(failures, key, repeatable))
        is_progress = len(again) < len(positions)
        if not again or not (yield from _may_continue([failures[at] for at in again], pause, is_progress=is_progress)):
            return
        positions = again


def _sent_again(failures: Failures, key: Callable[[int], Hashable], repeatable: Callable[[int], bool]) -> Iterator[int]:
    """Yield the positions to send again.

    Operations that follow one on the same key with an unknown outcome are not sent again, because that might change
    their order.
    """
    blocked: set[Hashable] = set()
    for position, failure in failures.items():
        is_safe = failure["applied"] == "no" or repeatable(position)
        if failure["retriable"] and is_safe and key(position) not in blocked:
            yield position
        elif failure["applied"] == "unknown":
            blocked.add(key(position))


def _may_continue(failures: Sequence[Mapping[str, Any]], pause: Pause, *, is_progress: bool) -> Call[bool]:
    """Return whether to send the failed operations again, after a pause unless the next attempt certainly differs."""
    codes = {failure["code"] for failure in failures}
    if codes <= {"unsupported"}:  # Their tokens have been removed.
        return True
    if codes <= {"unsupported", "too_large"}:  # The response was full, and the next one has room for some of them.
        return is_progress
    retry_after_s = max(failure.get("retry_after_s") or 0.0 for failure in failures)
    return (yield from pause(retry_after_s, f"{failures[0]['code']}: {failures[0]['detail']}"))
