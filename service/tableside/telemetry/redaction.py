"""Format exceptions for the log without data: type, traceback and causes, but no foreign messages.

The message of a driver's exception may contain a key, a value or a password, so only messages of Tableside's own errors
are logged.
"""

import re
import traceback
from collections.abc import Iterator

FRAMES_MAX = 40
"""Maximum number of frames logged per exception, the innermost ones. About six of them belong to the server."""

CHAIN_MAX = 8
"""Maximum number of exceptions logged of a chain or a group."""

_FRAME = re.compile(r'Traceback \(most|  File "[^"]+", line \d+, in ')
_NAME = re.compile(r"^[\w.]+(?=:|$)")

OWN_PACKAGES = ("tableside", "tableside_spark")


def redacted_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, causes first, without the messages of foreign exceptions."""
    return "\n".join(_chain(error, CHAIN_MAX))


def redacted_summary(error: BaseException) -> str:
    """Return the type of an exception and, if it is Tableside's own, its message, in one line."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {error}" if is_own_error(error) else name


def is_own_error(error: BaseException) -> bool:
    """Return whether the exception's class is Tableside's own, so that its message contains no data."""
    return type(error).__module__.partition(".")[0] in OWN_PACKAGES


def strip_messages(text: str) -> str:
    """Return a text. If it contains a printed traceback, keep only its frames and the exception's type."""
    if "Traceback (most recent call last):" not in text:
        return text.strip()
    lines = text.splitlines()
    kept = [line for line in lines if _FRAME.match(line)]
    return "\n".join([*kept, *(_NAME.findall(lines[-1])[:1])])


def _chain(error: BaseException, left: int) -> Iterator[str]:
    cause, why = error.__cause__, "which was the direct cause of:"
    if cause is None and not error.__suppress_context__:
        cause, why = error.__context__, "during which happened:"
    if cause is not None and left > 1:
        yield from (*_chain(cause, left - 1), why)
    yield "Traceback (most recent call last):"
    yield "".join(traceback.format_tb(error.__traceback__, -FRAMES_MAX)) + _without_causes(error)
    if isinstance(error, BaseExceptionGroup):
        for number, member in enumerate(error.exceptions[: max(0, left - 1)], 1):
            yield f"{number} of {len(error.exceptions)} together:"
            yield from _chain(member, left // 2)


def _without_causes(error: BaseException) -> str:
    """Return the summary of an exception, or for a group its type and size, because its message is not Tableside's."""
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__qualname__} of {len(error.exceptions)}"
    return redacted_summary(error)
