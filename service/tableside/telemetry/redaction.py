"""An exception as text for a log: what kind, where, and because of what, but none of the data that it may speak of.

A driver's message may hold a key, a value or a password, so only our own errors' messages are shown.
"""

import re
import traceback
from collections.abc import Iterator

FRAMES_MAX = 40
"""How many of an exception's frames are shown, the innermost; half a dozen of them are the server's."""

CHAIN_MAX = 8
"""How many exceptions of a chain, or of a group, are shown."""

_FRAME = re.compile(r'Traceback \(most|  File "[^"]+", line \d+, in ')
_NAME = re.compile(r"^[\w.]+(?=:|$)")

OWN_PACKAGES = ("tableside", "tableside_spark")


def redacted_traceback(error: BaseException) -> str:
    """Return the traceback, the cause first, as Python would print it without other people's messages."""
    return "\n".join(_chain(error, CHAIN_MAX))


def redacted_summary(error: BaseException) -> str:
    """Return in one line what an exception is, and what it says if it is ours."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {error}" if is_own_error(error) else name


def is_own_error(error: BaseException) -> bool:
    """Whether its message was written here, to be shown."""
    return type(error).__module__.partition(".")[0] in OWN_PACKAGES


def strip_messages(text: str) -> str:
    """Return a text, and where there is a printed traceback in it, that without what exceptions say."""
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
    yield "".join(traceback.format_tb(error.__traceback__, -FRAMES_MAX)) + _alone(error)
    if isinstance(error, BaseExceptionGroup):
        for number, member in enumerate(error.exceptions[: max(0, left - 1)], 1):
            yield f"{number} of {len(error.exceptions)} together:"
            yield from _chain(member, left // 2)


def _alone(error: BaseException) -> str:
    """Return what an exception is; of several together only how many: their common message is anybody's."""
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__qualname__} of {len(error.exceptions)}"
    return redacted_summary(error)
