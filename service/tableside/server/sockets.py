"""Listening sockets: no connection is to be lost when one is closed.

What the kernel has established and nobody has accepted is reset when the socket is closed. So first the kernel takes
no more, then what it has is accepted, then the socket is closed.
"""

import ctypes
import select
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

_ATTACH_FILTER = 26
_SYN = 0x02

_INSTRUCTIONS = (
    (0x30, 0, 0, 13),  # load the byte of a segment's head that has the flags
    (0x45, 0, 1, _SYN),  # if it has this one
    (0x06, 0, 0, 0),  # drop the segment
    (0x06, 0, 0, 0xFFFFFFFF),  # else pass it on whole
)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound there and does not listen yet. Raise OSError if it cannot be."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def refuse_new(sockets: Iterable[socket.socket]) -> None:
    """Let the kernel establish no more connections; those that it has can still be accepted.

    Whoever connects meanwhile is refused when the socket is closed. Where the kernel cannot be told so, it is only
    told to keep few of them.
    """
    for listener in sockets:
        listener.listen(0)
        if sys.platform == "linux" and listener.family != socket.AF_UNIX:
            _drop_first_segments(listener)


def readable(sockets: Iterable[socket.socket | int]) -> bool:
    """Return whether somebody waits to be accepted; of connections, whether something came, or their end."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return bool(poll.poll(0))


def _drop_first_segments(listener: socket.socket) -> None:
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in _INSTRUCTIONS)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(_INSTRUCTIONS), ctypes.addressof(kept))
    with suppress(OSError):  # some kernels let only the privileged do so, which the user of a container is not
        listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
