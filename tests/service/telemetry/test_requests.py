"""Which requests are logged, the fields of their lines, and the rate limit of these lines."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from service.telemetry.lines import Lines, logged
from support.virtual_time import in_virtual_time
from tableside.http.request_context import RequestContext
from tableside.http.request_observers import AccessLog
from tableside.telemetry import LogSettings, logs
from tableside.telemetry.logs import LINES_PER_S_MAX

ROUTE = "/v1/tables/{table}/records/{key:path}"


def request_log(chance: Callable[[], float] = lambda: 0.5, **settings: Any) -> AccessLog:
    return AccessLog(LogSettings(**settings), chance)


def serve(log: AccessLog, **notes: Any) -> None:
    usual: dict[str, Any] = {"request_id": "r", "method": "GET", "route": ROUTE, "status": 200, "duration_s": 0.001}
    noted = RequestContext(**usual | notes)
    log.request_ended(noted)


def kinds(lines: Lines) -> list[tuple[str, str]]:
    return [(line["level"], line["event"]) for line in lines.all]


def test_a_line_has_the_attributes_of_the_request_and_its_route() -> None:
    with logged() as lines:
        serve(
            request_log(requests=1),
            table="t",
            caller="job",
            operations=3,
            failed=1,
            code="throttled",
            status=429,
            bytes_in=7,
            bytes_out=8,
            duration_s=0.0123456,
        )
    [line] = lines.all
    del line["timestamp"]
    assert line == {
        "level": "info",
        "logger": "tableside.requests",
        "event": "request",
        "request_id": "r",
        "method": "GET",
        "route": ROUTE,
        "table": "t",
        "caller": "job",
        "operations": 3,
        "failed": 1,
        "status": 429,
        "code": "throttled",
        "duration_ms": 12.346,
        "bytes_in": 7,
        "bytes_out": 8,
    }


@pytest.mark.parametrize(("share", "expected"), [(0, 0), (0.25, 250), (1, 1000)])
def test_a_share_of_successful_requests_is_logged(share: float, expected: int) -> None:
    numbers = itertools.cycle([index / 1000 for index in range(1000)])
    with logged() as lines:
        log = request_log(lambda: next(numbers), requests=share)
        for status in (200, 204, 404, 429) * 250:
            serve(log, status=status)
    assert len(lines.all) == expected


def test_a_share_of_shed_requests_is_logged() -> None:
    numbers = itertools.cycle([0.0, 0.5, 0.5, 0.5])
    with logged() as lines:
        log = request_log(lambda: next(numbers), requests=0.3)
        for _ in range(40):
            serve(log, status=503, code="overloaded")
        assert kinds(lines) == [("warning", "shed request")] * 10


def test_a_disconnected_client_has_status_499_and_unknown_names_are_not_logged() -> None:
    with logged() as lines:
        serve(request_log(requests=1), method="MARKED", route="", status=0)
    [line] = lines.all
    assert (line["method"], line["route"], line["status"]) == ("other", "other", 499)


@in_virtual_time
async def test_failed_and_slow_requests_are_always_logged() -> None:
    with logged() as lines:
        log = request_log(requests=0, slow_s=0.5)
        serve(log, status=500, code="internal")
        serve(log, status=503, code="store_unavailable")
        serve(log, duration_s=0.5)
        serve(log, duration_s=0.499)
        assert kinds(lines) == [
            ("error", "failed request"),
            ("error", "failed request"),
            ("warning", "slow request"),
        ]


def test_probes_have_a_line_only_if_they_fail_and_readyz_has_none() -> None:
    """The service logs the changes of its readiness instead."""

    async def main() -> None:
        log = request_log(requests=1)
        for route in ("/livez", "/readyz", "/metrics"):
            serve(log, route=route)
            serve(log, route=route, duration_s=5.0)
            serve(log, route=route, status=503)

    with logged() as lines:
        asyncio.run(main())
    failed = [(line["event"], line["route"]) for line in lines.all]
    assert failed == [("failed request", "/livez"), ("failed request", "/metrics")]


def test_under_overload_the_log_is_limited_and_missing_lines_are_counted() -> None:
    now = 100.0
    with logged() as lines:
        logs.configure(LogSettings(), lines.stream, lambda: now)
        log = request_log(requests=1)
        for _ in range(LINES_PER_S_MAX + 30):
            serve(log, status=503, code="overloaded")
        for _ in range(LINES_PER_S_MAX + 4):
            serve(log, status=500, code="internal")
        assert len(lines.all) == 2 * LINES_PER_S_MAX
        for _ in range(LINES_PER_S_MAX + 4):
            serve(log)
        assert len(lines.all) == 3 * LINES_PER_S_MAX + 4, "a sample is not limited"
        now += 1.0
        serve(log, status=503, code="overloaded")
        *told, last = lines.all[3 * LINES_PER_S_MAX + 4 :]
        assert [(line["event"], line["left_out"]) for line in told] == [
            ("left out of the log: shed request", 30),
            ("left out of the log: failed request", 4),
        ]
        assert last["event"] == "shed request"
