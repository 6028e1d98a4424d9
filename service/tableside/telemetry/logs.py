"""The log of the process: a JSON object per line on standard output, whoever writes it, and nothing of tables' data.

Our own loggers say what they mean. Others may put anything into a text: of theirs only what is written in their
source is shown, and the place that says the rest. Knows nothing of requests.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from pathlib import PurePath
from typing import Any, TextIO

import structlog
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

from .log_limits import SourceLogLimiter
from .redaction import OWN_PACKAGES, redacted_summary, redacted_traceback, strip_messages
from .settings import LogSettings

LogEvent = MutableMapping[str, Any]

EVENT_CHARACTERS_MAX = 4096

TRUSTED_LOGGERS = (*OWN_PACKAGES, "uvicorn")
"""Loggers whose texts hold nothing of tables' data, and which speak from the configured level on."""

REQUEST_LOGGER = "tableside.requests"
"""The logger of requests, which limits its lines itself, by the outcome of requests."""

_RECORD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def configure(
    settings: LogSettings, stream: TextIO | None = None, monotonic: Callable[[], float] = time.monotonic
) -> None:
    """Log as the settings say, from now on; it may be called again. `stream` is standard output if not given."""
    lines = _Lines(stream or sys.stdout, SourceLogLimiter(monotonic))
    lines.setFormatter(_formatter(settings, colours=lines.stream.isatty()))
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(max(level, logging.WARNING))
    for name in TRUSTED_LOGGERS:
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(True)
    _catch_what_nobody_does()


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines. One that cannot be written is not shown on standard error either, with all that it holds."""

    def __init__(self, stream: TextIO, flood: SourceLogLimiter) -> None:
        super().__init__(stream)
        self._flood = flood

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless too many came from there in this second; the next line is told how many."""
        for (path, line), count in self._flood.suppressed_counts().items():
            super().emit(_own(logging.WARNING, f"left out of the log: {_place(path, line)}", record, left_out=count))
        if record.name == REQUEST_LOGGER or self._flood.allow((record.pathname, record.lineno)):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # as logging has it
        """Say where a line was lost, if even that can be written."""
        text = f"a line could not be written: {_place(record.pathname, record.lineno)}"
        try:
            self.stream.write(self.format(_own(logging.ERROR, text, record)) + self.terminator)
            self.flush()
        except (OSError, ValueError):
            return  # There is nobody to read it.


def _own(level: int, text: str, about: logging.LogRecord, **fields: object) -> logging.LogRecord:
    """Return a line of this module's, as old as the one that it is about."""
    said = {"name": __name__, "levelno": level, "levelname": logging.getLevelName(level), "created": about.created}
    return logging.makeLogRecord({**said, "msg": text, **fields})


def _formatter(settings: LogSettings, *, colours: bool) -> logging.Formatter:
    console = settings.format == "console"
    render: Any = (
        structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer(default=lambda value: type(value).__qualname__)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            _say,
            _add_span,
            _add_exception,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        use_get_message=False,
        pass_foreign_args=True,
    )


def _say(logger: object, method: str, line: LogEvent) -> LogEvent:
    """Make the event of a record, and of ours take the fields that came with it."""
    record: logging.LogRecord = line["_record"]
    arguments = line.pop("positional_args")
    family = record.name.partition(".")[0]
    del line["event"]  # so that it comes after what says when and where
    if family in TRUSTED_LOGGERS:
        line["event"] = strip_messages(_text(record.msg, arguments))[:EVENT_CHARACTERS_MAX]
    else:
        line["event"] = _written(record, arguments)[:EVENT_CHARACTERS_MAX]
        line["source"] = _place(record.pathname, record.lineno)
    if family in OWN_PACKAGES:
        line.update({name: value for name, value in record.__dict__.items() if name not in _RECORD_FIELDS})
    return line


def _text(template: object, arguments: Any) -> str:
    """Return a text with its arguments; of errors among these that are not ours only what they are."""
    if isinstance(arguments, tuple):
        arguments = tuple(redacted_summary(value) if isinstance(value, BaseException) else value for value in arguments)
    return str(template) % arguments if arguments else str(template)


def _written(record: logging.LogRecord, arguments: Any) -> str:
    """Return what is in the source of a text, if that can be told."""
    text = str(record.msg)
    if record.name == "py.warnings":
        return ": ".join(str(arguments[0] if arguments else text).partition("\n")[0].split(": ")[:2])
    if record.name == "asyncio":  # Then follow representations of tasks and callbacks, with what they were given.
        return text.partition("\n")[0].partition("(")[0].partition("<")[0].strip()
    return text if arguments else "a text that may hold data and is not shown"


def _add_span(logger: object, method: str, line: LogEvent) -> LogEvent:
    """Say to which trace it belongs; a span that has ended is that of who once began the work, and not of the work."""
    span = get_current_span()
    context = span.get_span_context()
    if context.is_valid and getattr(span, "end_time", None) is None:
        line["trace_id"] = format_trace_id(context.trace_id)
        line["span_id"] = format_span_id(context.span_id)
    return line


def _add_exception(logger: object, method: str, line: LogEvent) -> LogEvent:
    record: logging.LogRecord = line["_record"]
    line.pop("exc_info", None)
    line.pop("stack_info", None)
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = redacted_traceback(record.exc_info[1])
    return line


def _place(path: str, line: int) -> str:
    return f"{PurePath(*PurePath(path).parts[-3:])}:{line}"


def _catch_what_nobody_does() -> None:
    """Log what ends a thread or the process, which would be printed with all its text."""
    log = logging.getLogger("tableside")

    def in_process(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        log.critical("a fault ends the process", exc_info=error)

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and not isinstance(arguments.exc_value, SystemExit):
            log.error("a fault ends a thread", exc_info=arguments.exc_value)

    def in_passing(arguments: Any) -> None:
        log.error("a fault that nobody can handle", exc_info=arguments.exc_value)

    sys.excepthook = in_process
    threading.excepthook = in_thread
    sys.unraisablehook = in_passing
