"""What leaves on a connection: joined where that is cheap, in order always, all of it before the end."""

import asyncio
from typing import cast

from tableside.protocol import JOINED_BYTES_MAX, Joined


class Recorder:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def joined() -> tuple[Recorder, Joined]:
    recorder = Recorder()
    return recorder, Joined(cast("asyncio.Transport", recorder))


async def test_what_is_written_in_one_turn_leaves_in_one_piece() -> None:
    recorder, transport = joined()
    transport.write(b"head")
    transport.write(b"body")
    assert recorder.done == []
    await asyncio.sleep(0)
    assert recorder.done == [b"headbody"]
    transport.write(b"next")
    await asyncio.sleep(0)
    assert recorder.done == [b"headbody", b"next"]


async def test_what_was_written_leaves_before_the_connection_is_closed() -> None:
    recorder, transport = joined()
    transport.write(b"last")
    transport.close()
    await asyncio.sleep(0)
    assert recorder.done == [b"last", "closed"]
    assert transport.is_closing()


async def test_a_long_piece_is_not_copied_and_keeps_its_place() -> None:
    recorder, transport = joined()
    long = b"x" * (JOINED_BYTES_MAX + 1)
    transport.write(b"head")
    transport.write(long)
    transport.write(b"tail")
    await asyncio.sleep(0)
    assert recorder.done == [b"head", long, b"tail"]
    assert recorder.done[1] is long
