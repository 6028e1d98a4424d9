"""The end of a body in chunks, which a connection receives in pieces."""

import re

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]+)[^\n]*\n")
_LINE_END_BYTES = 2


class ChunkedBody:
    """Finds the end of a body. It skips the contents of chunks, which may look like an end.

    It does not check the syntax, because the parser does.
    """

    def __init__(self) -> None:
        self._skipped_bytes = 0
        self._line = b""
        self._in_trailers = False

    def end(self, data: bytes, start: int) -> int:
        """Return where the body ends in the next piece, or the length of `data` if it does not end there."""
        at = self._skip_chunks(data, start + self._skipped_bytes)
        while at < len(data):
            end = data.find(b"\n", at) + 1
            line = self._line + data[at : end or len(data)]
            if not end:
                self._line, at = line, len(data)
            elif self._in_trailers:
                if line == b"\r\n":
                    return end
                self._line, at = b"", end
            else:
                size_line = _SIZE_LINE.match(line)
                size_bytes = int(size_line[1], 16) if size_line else 0
                self._line, self._in_trailers = b"", size_bytes == 0
                at = self._skip_chunks(data, end + size_bytes + _LINE_END_BYTES if size_bytes else end)
        self._skipped_bytes = at - len(data)
        return len(data)

    def _skip_chunks(self, data: bytes, at: int) -> int:
        """Return where the first line begins that is incomplete or announces no chunk."""
        while at < len(data) and not (self._line or self._in_trailers):  # A size may exceed that of an index.
            if (found := _SIZE_LINE.match(data, at)) is None:
                break
            if (size_bytes := int(found[1], 16)) == 0:
                break
            at = found.end() + size_bytes + _LINE_END_BYTES
        return at
