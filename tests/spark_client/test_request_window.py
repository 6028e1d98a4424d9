"""Windows of requests adapt to the service: full use without a long queue, equal shares, fewer after rejections."""

import heapq
from collections import deque

import pytest

from tableside_client.retries import START, TARGET_S, RequestWindow


class SimulatedService:
    """A service that works on `servers` requests at a time, `request_s` seconds each, in the order of arrival."""

    def __init__(self, windows: list[RequestWindow], servers: int, request_s: float) -> None:
        self._windows = windows
        self._free = servers
        self._request_s = request_s
        self._queue: deque[tuple[float, int]] = deque()
        self._served: list[tuple[float, float, int]] = []
        self._in_flight = [0] * len(windows)
        self.finished = [0] * len(windows)
        self.durations_s: list[float] = []

    def run(self, until_s: float) -> None:
        """Let every window send as much as it may until this time."""
        self._send(0.0)
        while self._served[0][0] <= until_s:
            now_s, sent_s, task = heapq.heappop(self._served)
            self._free += 1
            self._in_flight[task] -= 1
            self.finished[task] += 1
            self.durations_s.append(now_s - sent_s)
            self._windows[task].observe(now_s - sent_s)
            self._send(now_s)

    def _send(self, now_s: float) -> None:
        for task, window in enumerate(self._windows):
            while self._in_flight[task] < window.size:
                self._in_flight[task] += 1
                self._queue.append((now_s, task))
        while self._free and self._queue:
            self._free -= 1
            sent_s, task = self._queue.popleft()
            heapq.heappush(self._served, (now_s + self._request_s, sent_s, task))


@pytest.mark.parametrize("tasks", [1, 2, 4, 8])
@pytest.mark.parametrize("request_s", [0.01, 0.1])
def test_a_busy_service_is_used_fully_with_a_short_queue_and_in_equal_shares(tasks: int, request_s: float) -> None:
    service = SimulatedService([RequestWindow(16) for _ in range(tasks)], 1, request_s)
    service.run(60.0)
    assert sum(service.finished) > 0.95 * 60.0 / request_s
    assert max(service.finished) < 1.3 * min(service.finished)
    late = service.durations_s[len(service.durations_s) // 2 :]
    least_s = tasks * request_s  # each task has at least one request in flight
    assert max(late) < 2.1 * max(TARGET_S, least_s)


def test_a_service_that_is_not_busy_is_used_concurrently() -> None:
    window = RequestWindow(16)
    SimulatedService([window], 64, 0.2).run(60.0)
    assert window.size == 16


def test_a_task_that_starts_later_gets_an_equal_share() -> None:
    first, second = RequestWindow(16), RequestWindow(16)
    SimulatedService([first], 1, 0.025).run(60.0)
    service = SimulatedService([first, second], 1, 0.025)
    service.run(60.0)
    assert max(service.finished) < 1.3 * min(service.finished)


def test_rejections_halve_the_window_down_to_one() -> None:
    window = RequestWindow(16)
    for _ in range(200):
        window.observe(0.01)
    sizes = [window.size]
    for code in ("overloaded", "throttled", "deadline_exceeded", "overloaded", "overloaded"):
        window.observe(0.01, code)
        sizes.append(window.size)
    assert sizes == [16, 8, 4, 2, 1, 1]
    window.observe(0.01, "contended")
    assert window.size == 1


def test_the_window_starts_small_and_never_exceeds_its_maximum() -> None:
    assert RequestWindow(16).size == START
    window = RequestWindow(1)
    assert window.size == 1
    window.observe(0.01)
    assert window.size == 1
