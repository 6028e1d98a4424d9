"""Every log line, also of other libraries, is one JSON object without user data."""

import asyncio
import gc
import logging
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from service.telemetry.lines import Lines, logged
from tableside.telemetry import LogSettings, logs
from tableside.telemetry.logs import LINES_PER_S_MAX

SECRET = "marked-secret"

ours = logging.getLogger("tableside.somewhere")


@pytest.fixture
def lines() -> Iterator[Lines]:
    with logged(level="debug") as lines:
        yield lines


def failing() -> None:
    hidden = SECRET  # a local variable, which a traceback could show
    raise KeyError(hidden)


def test_a_line_has_a_time_a_source_a_level_and_an_event(lines: Lines) -> None:
    ours.warning("a store %s", "is away", extra={"table": "t", "count": 3})
    [line] = lines.all
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "level": "warning",
        "logger": "tableside.somewhere",
        "event": "a store is away",
        "table": "t",
        "count": 3,
    }
    assert list(lines.all[0]) == ["timestamp", "level", "logger", "event", "table", "count"]


def test_line_breaks_in_events_are_escaped(lines: Lines) -> None:
    ours.info("two\nlines and \ud800 a lone half", extra={"more": "a\nb"})
    ours.info("x" * 100_000)
    first, second = lines.all
    assert first["event"] == "two\nlines and \ud800 a lone half"
    assert len(second["event"]) == 4096


def repeated(count: int, text: str) -> None:
    for number in range(count):
        ours.warning(text, number)


def test_lines_per_source_are_rate_limited_and_missing_ones_counted(lines: Lines) -> None:
    now = 100.0
    logs.configure(LogSettings(), lines.stream, lambda: now)
    repeated(LINES_PER_S_MAX, "one %s")
    repeated(30, "another %s")  # from the same source line: the text does not matter
    ours.warning("elsewhere")
    assert lines.events == [*(f"one {number}" for number in range(LINES_PER_S_MAX)), "elsewhere"]
    now += 1.0
    repeated(1, "later %s")
    told, later = lines.all[-2:]
    assert re.fullmatch(r"left out of the log: .*telemetry/test_logs\.py:\d+", told["event"])
    assert (told["level"], told["left_out"], later["event"]) == ("warning", 30, "later 0")


def test_the_level_may_be_changed_while_lines_are_written(lines: Lines) -> None:
    ours.debug("one")
    lines.configure(level="error")
    ours.warning("two")
    logging.getLogger("asyncpg").warning("two %s", 2)
    lines.configure(level="info")
    ours.debug("three")
    ours.info("four")
    assert lines.events == ["one", "four"]


def test_of_other_libraries_only_constant_texts_are_logged(lines: Lines) -> None:
    logging.getLogger("botocore.endpoint").info("Found %s", SECRET)  # libraries log from warnings on
    logging.getLogger("redis").warning("cannot use %s", SECRET)
    ready_made = f"ready-made: {SECRET}"
    logging.getLogger("asyncpg").error(ready_made, extra={"detail": SECRET})
    template, made = lines.all
    assert template["event"] == "cannot use %s"
    assert made["event"] == "a text that may contain data and is not logged"
    assert re.fullmatch(r"service/telemetry/test_logs\.py:\d+", made["source"])
    assert SECRET not in lines.text


def test_of_other_libraries_errors_only_type_and_position_are_logged(lines: Lines) -> None:
    try:
        try:
            failing()
        except KeyError as error:
            raise ValueError(SECRET) from error
    except ValueError as error:
        error.add_note(SECRET)
        ours.exception("it failed: %s", error)
    [line] = lines.all
    assert line["event"] == "it failed: ValueError"
    text = line["exception"]
    assert "in failing\n" in text
    assert text.index("KeyError\n") < text.index("which was the direct cause of:") < text.index("\nValueError")
    assert text.endswith("\nValueError")
    assert SECRET not in lines.text


def test_exceptions_of_a_group_are_logged_up_to_a_limit(lines: Lines) -> None:
    def nested(depth: int) -> Exception:
        inner = [nested(depth - 1) for _ in range(3)] if depth else [KeyError(SECRET)]
        return ExceptionGroup(SECRET, inner)

    ours.error("several", exc_info=ExceptionGroup(SECRET, [ValueError(SECRET), TypeError(SECRET)]))
    ours.error("very many", exc_info=nested(6))
    few, many = lines.all
    assert few["exception"].startswith("Traceback (most recent call last):\nExceptionGroup of 2\n1 of 2 together:")
    assert "\nValueError\n2 of 2 together:" in few["exception"]
    assert "\nTypeError" in few["exception"]
    assert len(many["exception"]) < 10_000
    assert SECRET not in lines.text


def test_asyncios_messages_about_lost_errors_contain_no_data(lines: Lines) -> None:
    async def lost(value: str) -> None:
        raise ValueError(value)

    def callback(value: str) -> None:
        raise ValueError(value)

    async def main() -> None:
        task = asyncio.create_task(lost(SECRET))
        asyncio.get_running_loop().call_soon(callback, SECRET)
        await asyncio.sleep(0.01)
        del task
        gc.collect()

    asyncio.run(main())
    assert sorted(lines.events) == [
        "Exception in callback test_asyncios_messages_about_lost_errors_contain_no_data.",
        "Task exception was never retrieved",
    ]
    assert all(line["exception"].endswith("\nValueError") for line in lines.all)
    assert SECRET not in lines.text


def test_a_traceback_that_the_server_prints_is_cleared_of_messages(lines: Lines) -> None:
    try:
        raise ConnectionError(f"redis://:{SECRET}@host\nand {SECRET}")
    except ConnectionError:
        logging.getLogger("uvicorn.error").error(traceback.format_exc())
    [line] = lines.all
    assert "Traceback (most recent call last):\n  File " in line["event"]
    assert SECRET not in lines.text


def test_uncaught_exceptions_are_logged_as_a_line(lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    thread = threading.Thread(target=failing)
    thread.start()
    thread.join()
    error = ValueError(SECRET)
    sys.excepthook(ValueError, error, None)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert [(line["level"], line["event"]) for line in lines.all] == [
        ("error", "an unhandled exception ends a thread"),
        ("critical", "an unhandled exception ends the process"),
    ]
    assert SECRET not in lines.text + "".join(capsys.readouterr())


def test_a_warning_of_a_library_is_a_line_without_its_text(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)  # the earlier capture belongs to the test runner
        logging.captureWarnings(True)
        warnings.warn(f"old: {SECRET}", DeprecationWarning, stacklevel=1)
    [line] = lines.all
    assert re.fullmatch(r".*/test_logs\.py:\d+: DeprecationWarning", line["event"])


def test_a_line_that_cannot_be_formatted_is_replaced(lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    lines.configure()  # configured again, since pytest's handler would raise
    ours.error("wrong %d", SECRET)
    ours.error("right")
    first, second = lines.events
    assert first.startswith("a line could not be written: service/telemetry/test_logs.py:")
    assert second == "right"
    assert SECRET not in lines.text + "".join(capsys.readouterr())


def test_a_line_contains_its_trace(lines: Lines) -> None:
    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(0)))
    with use_span(span):
        ours.info("within")
    ours.info("outside")
    within, outside = lines.all
    assert within["trace_id"] == "00000000000000000000000000000abc"
    assert within["span_id"] == "0000000000000def"
    assert outside.keys() == {"timestamp", "level", "logger", "event"}


def test_the_text_format_is_readable(lines: Lines) -> None:
    lines.configure(format="console")
    try:
        failing()
    except KeyError:
        ours.exception("it failed", extra={"table": "t"})
    assert re.search(r"\[error +\] it failed +\[tableside\.somewhere\] table=t\n", lines.text)
    assert lines.text.endswith("\nKeyError\n")
    assert SECRET not in lines.text
