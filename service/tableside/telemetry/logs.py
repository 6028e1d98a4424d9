"""The process's log: one JSON object per line on standard output, without any data of tables.

Messages of trusted loggers are logged completely. Other libraries may format data into their messages, so only the
constant text from their source is logged, with the source location. Of exceptions of other libraries, the log has the
types, tracebacks and causes, but no messages.
"""

import logging
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import PurePath
from typing import Any, Literal, TextIO

import structlog
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span
from pydantic import BaseModel, Field

EVENT_CHARACTERS_MAX = 4096

OWN_PACKAGES = ("tableside", "tableside_spark")
"""Packages whose errors have messages without data. A driver's message may contain a key, a value or a password."""

TRUSTED_LOGGERS = (*OWN_PACKAGES, "uvicorn")
"""Loggers whose messages contain no data of tables. They log from the configured level on."""

REQUEST_LOGGER, AUDIT_LOGGER = "tableside.requests", "tableside.audit"
"""The loggers of requests and of the audit. Their lines are limited by event, and not at all at level info."""

LINES_PER_S_MAX = 20
"""The limit on the lines from one place in the source. Callers cannot evade it, because content does not count."""

FRAMES_MAX = 40
CHAIN_MAX = 8
"""Maximum numbers of frames logged per exception, the innermost ones, and of exceptions of a chain or a group."""

_FRAME = re.compile(r'Traceback \(most|  File "[^"]+", line \d+, in ')
_NAME = re.compile(r"^[\w.]+(?=:|$)")

_RECORD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class LogSettings(BaseModel, frozen=True, extra="forbid"):
    """The log's level and format, the share of successful requests to log, and the duration of a slow request.

    `audit` adds lines that are never sampled. `security` selects rejected tokens, denied operations, administrative
    requests and changes of the configuration. They are rare, or limited, so they are the default also without `auth`.
    `writes` adds a line for each request that writes.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
    requests: float = Field(default=0.01, ge=0, le=1)
    slow_s: float = Field(default=1.0, gt=0, le=3600)
    audit: Literal["none", "security", "writes"] = "security"


def configure(
    settings: LogSettings, stream: TextIO | None = None, monotonic: Callable[[], float] = time.monotonic
) -> None:
    """Configure logging. May be called again with other settings. `stream` defaults to standard output."""
    lines = _LineHandler(stream or sys.stdout, monotonic)
    render: Any = structlog.processors.JSONRenderer(default=lambda value: type(value).__qualname__)
    if settings.format == "console":
        colours = lines.stream.isatty()
        render = structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            _complete,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        use_get_message=False,
        pass_foreign_args=True,
    )
    lines.setFormatter(formatter)
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, _LineHandler):
            handler.close()
    root.handlers[:] = [lines]
    root.setLevel(max(level, logging.WARNING))
    for name in TRUSTED_LOGGERS:
        logging.getLogger(name).setLevel(level)
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)  # at any `level`
    logging.captureWarnings(True)
    _log_unhandled_exceptions()


class _LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines. A line that cannot be written is not printed to standard error, because it may contain data."""

    def __init__(self, stream: TextIO, monotonic: Callable[[], float]) -> None:
        super().__init__(stream)
        self._monotonic, self._second_began = monotonic, monotonic()
        self._counts: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line unless its source logged too many in this second. Log the number of suppressed lines later."""
        if self._monotonic() - self._second_began >= 1.0:
            self._log_suppressed()
        by_event = record.name in (REQUEST_LOGGER, AUDIT_LOGGER)
        kind = (record.name, str(record.msg)) if by_event else (__name__, _place(record.pathname, record.lineno))
        if not by_event or record.levelno > logging.INFO:
            self._counts[kind] += 1
        if self._counts[kind] <= LINES_PER_S_MAX:
            super().emit(record)

    def close(self) -> None:
        """Log the number of lines suppressed in the last second. `logging` calls this when the process ends."""
        self._log_suppressed()
        super().close()

    def _log_suppressed(self) -> None:
        """Log the number of suppressed lines by kind, and start a new second."""
        counts, self._counts, self._second_began = self._counts, Counter(), self._monotonic()
        for (name, kind), count in counts.items():
            if (left_out := count - LINES_PER_S_MAX) > 0:
                text = f"left out of the log: {kind}"
                super().emit(_internal_record(logging.WARNING, text, time.time(), name=name, left_out=left_out))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # as logging has it
        """Log the source of a line that could not be written, if possible."""
        text = f"a line could not be written: {_place(record.pathname, record.lineno)}"
        try:
            self.stream.write(self.format(_internal_record(logging.ERROR, text, record.created)) + self.terminator)
            self.flush()
        except (OSError, ValueError):
            return  # The stream itself is broken.


def _internal_record(level: int, text: str, created: float, **fields: object) -> logging.LogRecord:
    """Return a log record of this module. `created` is its time in seconds since 1970."""
    said = {"name": __name__, "levelno": level, "levelname": logging.getLevelName(level), "created": created}
    return logging.makeLogRecord({**said, "msg": text, **fields})


def _complete(logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Set the event. Add the extra fields of Tableside's own records, the current span, and the exception."""
    record: logging.LogRecord = line["_record"]
    arguments = line.pop("positional_args")
    family = record.name.partition(".")[0]
    for name in ("event", "exc_info", "stack_info"):  # The event is added again after the time, level and logger.
        line.pop(name, None)
    if family in TRUSTED_LOGGERS:
        if isinstance(arguments, tuple):  # Foreign exceptions among these are reduced to their type.
            arguments = tuple(redacted_summary(one) if isinstance(one, BaseException) else one for one in arguments)
        text = str(record.msg) % arguments if arguments else str(record.msg)
        line["event"] = strip_messages(text)[:EVENT_CHARACTERS_MAX]
    else:
        line["event"] = _constant_text(record, arguments)[:EVENT_CHARACTERS_MAX]
        line["source"] = _place(record.pathname, record.lineno)
    if family in OWN_PACKAGES:
        line.update({name: value for name, value in record.__dict__.items() if name not in _RECORD_FIELDS})
    span = get_current_span()
    context = span.get_span_context()
    if context.is_valid and getattr(span, "end_time", None) is None:  # A span that has ended only started this work.
        line["trace_id"] = format_trace_id(context.trace_id)
        line["span_id"] = format_span_id(context.span_id)
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = "\n".join(_traceback(record.exc_info[1], CHAIN_MAX))
    return line


def _constant_text(record: logging.LogRecord, arguments: Any) -> str:
    """Return the part of a message that is constant in its source, if it can be determined."""
    text = str(record.msg)
    if record.name == "py.warnings":
        return ": ".join(str(arguments[0] if arguments else text).partition("\n")[0].split(": ")[:2])
    if record.name == "asyncio":  # The rest contains representations of tasks and callbacks with their arguments.
        return text.partition("\n")[0].partition("(")[0].partition("<")[0].strip()
    return text if arguments else "a text that may contain data and is not logged"


def _place(path: str, line: int) -> str:
    return f"{PurePath(*PurePath(path).parts[-3:])}:{line}"


def _log_unhandled_exceptions() -> None:
    """Log unhandled exceptions of threads and the process, which Python would print with their messages."""
    log = logging.getLogger("tableside")

    def in_process(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("an unhandled exception ends the process", exc_info=error)

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and not isinstance(arguments.exc_value, SystemExit):
            log.error("an unhandled exception ends a thread", exc_info=arguments.exc_value)

    sys.excepthook = in_process
    threading.excepthook = in_thread
    sys.unraisablehook = lambda arguments: log.error(
        "an unhandled exception in a finalizer", exc_info=arguments.exc_value
    )


def redacted_summary(error: BaseException) -> str:
    """Return the type of an exception and, if it is Tableside's own, its message, in one line."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {error}" if kind.__module__.partition(".")[0] in OWN_PACKAGES else name


def strip_messages(text: str) -> str:
    """Return a text. If it contains a printed traceback, keep only its frames and the exception's type."""
    if "Traceback (most recent call last):" not in text:
        return text.strip()
    lines = text.splitlines()
    kept = [line for line in lines if _FRAME.match(line)]
    return "\n".join([*kept, *(_NAME.findall(lines[-1])[:1])])


def _traceback(error: BaseException, left: int) -> Iterator[str]:
    """Yield the traceback as Python prints it, causes first, without the messages of foreign exceptions."""
    cause, why = error.__cause__, "which was the direct cause of:"
    if cause is None and not error.__suppress_context__:
        cause, why = error.__context__, "during which happened:"
    if cause is not None and left > 1:
        yield from (*_traceback(cause, left - 1), why)
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    # The message of a group is not Tableside's.
    summary = f"{type(error).__qualname__} of {len(members)}" if members else redacted_summary(error)
    yield "Traceback (most recent call last):"
    yield "".join(traceback.format_tb(error.__traceback__, -FRAMES_MAX)) + summary
    for number, member in enumerate(members[: max(0, left - 1)], 1):
        yield f"{number} of {len(members)} together:"
        yield from _traceback(member, left // 2)
