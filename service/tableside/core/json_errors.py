"""The reason why a text is not JSON, and the byte position, without any of the text."""

import orjson

from .errors import MalformedRequest


class NotJson(MalformedRequest):
    """A text is not JSON. `position` is the index of the first wrong byte, None if it is unknown.

    `operation` is the index of the operation of a batch that contains this byte.
    """

    def __init__(self, reason: str, position: int | None = None, operation: int | None = None) -> None:
        where = "" if position is None else f" at byte {position}"
        super().__init__(f"not JSON{where}{'' if operation is None else f', in operation {operation}'}: {reason}")
        self.reason = reason
        self.position = position


def not_json(text: bytes | str) -> NotJson:
    """Return the error for a text that msgspec has rejected.

    The position is from orjson. msgspec reports none for texts that end too early, numbers that are too large and
    invalid UTF-8. Its positions of other errors are up to two bytes late.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        orjson.loads(decoded)
    except UnicodeDecodeError as wrong:
        return NotJson("invalid UTF-8", wrong.start)
    except orjson.JSONDecodeError as wrong:
        if not decoded.isspace() and decoded:
            return NotJson(wrong.msg, len(decoded[: wrong.pos].encode()))
        return NotJson("the text is empty")
    return NotJson("invalid encoding or number")
