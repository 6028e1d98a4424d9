"""Scans: SCAN over the names that begin as the table's do, page by page.

SCAN returns everything that was there throughout if it is followed from cursor to cursor on one running server. So a
position holds the server's run and a cursor, and where a page had no place for all that a cursor gave, digests of the
names that it did give: from the same cursor they are then left out. A server that was started again, or another node
that took over, is scanned from the start. Slots of a cluster count as done when the node that was scanned served them
as its own before and after.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_digest

from ...core import Key, MalformedRequest, Outcome, Page, Record, Scan, StoreUnavailable, TableError
from .connection import Node
from .errors import failed
from .keys import Names, slot_of
from .reads import Reads
from .scripts import Command
from .topology import EVERY_SLOT, Servers, from_text, of_split, to_text

COUNT_MAX = 512
"""How many keys one SCAN looks at where the table has many; a position never holds more digests."""

COUNT_SPARSE_MAX = 8192
ROUNDS_MAX = 64
"""How many SCANs one page takes, found or not."""

FIRST_VALUES = 16
"""How many values are read before it is known how long they are."""

DIGEST_BYTES = 8


class Position(msgspec.Struct, frozen=True, array_like=True):
    """How far a scan is: slots still to do, those of them that are being done, and where on which run of a server."""

    left: str
    part: str = ""
    run: str = ""
    cursor: int = 0
    given: bytes = b""

    def starting_again(self) -> "Position":
        """Return where to go on when what is being done must be done from its start."""
        return Position(self.left)


class Scans:
    """Scans one table."""

    def __init__(self, servers: Servers, names: Names, reads: Reads) -> None:
        self._servers = servers
        self._names = names
        self._reads = reads

    async def page(self, scan: Scan) -> Page:
        """Read a page, in no order."""
        position, found = _position(scan), _Found(scan)
        pattern, count, node = self._names.pattern(scan), min(scan.limit, COUNT_MAX), None
        for _ in range(ROUNDS_MAX):
            if node is None or not position.part:
                node, position = await self._part(position)
            run, cursor, names = await _scanned(node, position.cursor, pattern, count)
            if position.run not in ("", run):
                position, node = position.starting_again(), None
                continue
            position = replace(position, run=run)
            fresh = self._fresh(names, position, found)
            if len(fresh) > found.room and (found.records or count > 1):
                if found.records:
                    break
                count = max(1, count // 4)
                continue
            taken = await self._take(fresh, found)
            if taken < len(fresh):
                given = b"".join(xxh3_64_digest(name) for name, _ in fresh[:taken])
                position = replace(position, given=position.given + given)
                break
            if cursor:
                position = replace(position, cursor=cursor, given=b"")
            elif (after := await self._after(node, position)) is None:
                return Page(found.records, None)
            else:
                position, node = after, None
            if found.full:
                break
            count = max(1, min(found.room, COUNT_MAX)) if fresh else min(count * 2, COUNT_SPARSE_MAX)
        return Page(found.records, msgspec.json.encode(position))

    async def _part(self, position: Position) -> tuple[Node, Position]:
        """Return the node to scan, and the position with the slots that are done on it."""
        wanted = from_text(position.part or position.left)
        nodes = await self._servers.nodes(math.inf)
        node, slots = max(nodes, key=lambda one: len(one[1] & wanted), default=(None, frozenset[int]()))
        if node is None or not slots & wanted:
            raise StoreUnavailable("nobody serves some slots of the Redis Cluster")
        if position.part:
            return node, position
        part = wanted & await self._own(node)
        if not part:
            raise StoreUnavailable("slots of the Redis Cluster are on their way to another node")
        return node, replace(position, part=to_text(part))

    async def _after(self, node: Node, position: Position) -> Position | None:
        """Return where to go on when a node has been gone through; None if everything is done."""
        left = from_text(position.left) - (from_text(position.part) & await self._own(node))
        return Position(to_text(left)) if left else None

    async def _own(self, node: Node) -> frozenset[int]:
        """Return the slots that a node serves and is not giving away."""
        if not self._servers.several:
            return EVERY_SLOT
        [reply] = await node.ask(_NODES, 1, math.inf)
        if not isinstance(reply, bytes):
            raise failed(reply)
        lines = [line.split() for line in reply.decode().splitlines()]
        words = [word for line in lines if "myself" in line[2].split(",") for word in line[8:]]
        leaving = {int(word[1:].partition("-")[0]) for word in words if "->-" in word}
        owned = ",".join(word for word in words if not word.startswith("["))
        return from_text(owned) - leaving if owned else frozenset()

    def _fresh(self, names: Sequence[bytes], position: Position, found: "_Found") -> list[tuple[bytes, Key]]:
        """Return the names of records among those that SCAN gave, without those that were given already."""
        part, given = from_text(position.part), position.given
        before = {given[at : at + DIGEST_BYTES] for at in range(0, len(given), DIGEST_BYTES)}
        fresh: dict[bytes, Key] = {}
        for name in names:
            if name in found.names or (before and xxh3_64_digest(name) in before):
                continue
            key = self._names.key(name)
            if key is not None and (part is EVERY_SLOT or slot_of(name.decode()) in part):
                fresh[name] = key
        return list(fresh.items())

    async def _take(self, fresh: Sequence[tuple[bytes, Key]], found: "_Found") -> int:
        """Read records until the page is over, and return of how many that was found out."""
        taken = 0
        while taken < len(fresh) and not found.over:
            some = fresh[taken : taken + found.appetite]
            outcomes = await self._reads.named([name.decode() for name, _ in some], math.inf)
            taken += found.add(some, outcomes)
        return taken


class _Found:
    """The records of a page so far."""

    def __init__(self, scan: Scan) -> None:
        self.records: list[tuple[Key, Record]] = []
        self.names: set[bytes] = set()
        self._scan = scan
        self._size_bytes = 0

    def add(self, names: Sequence[tuple[bytes, Key]], outcomes: Sequence[Outcome]) -> int:
        """Take records until the page is over; return how many names that went through."""
        for taken, ((name, key), outcome) in enumerate(zip(names, outcomes, strict=True)):
            if self.over:
                return taken
            if isinstance(outcome, TableError):
                raise outcome
            self.names.add(name)
            if isinstance(outcome, Record):
                self.records.append((key, outcome))
                self._size_bytes += len(outcome.value)
        return len(names)

    @property
    def room(self) -> int:
        """How many records there is place for."""
        return self._scan.limit - len(self.records)

    @property
    def over(self) -> bool:
        """Whether no further record may be taken."""
        return self.room <= 0 or self._size_bytes > self._scan.bytes_max

    @property
    def full(self) -> bool:
        """Whether it is better to end the page than to look for the last records that it has place for."""
        return self.over or self.room * 4 <= self._scan.limit

    @property
    def appetite(self) -> int:
        """How many values to read at once: what fits, if they are as long as those so far."""
        if not self.records:
            return FIRST_VALUES
        left_bytes = max(0, self._scan.bytes_max - self._size_bytes)
        return 1 + left_bytes * len(self.records) // max(1, self._size_bytes)


_NODES = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n"


async def _scanned(node: Node, cursor: int, pattern: str, count: int) -> tuple[str, int, list[bytes]]:
    """Return the run of the server, the next cursor, and the names that SCAN gave."""
    commands = [Command(("INFO", "server")), Command(("SCAN", cursor, "MATCH", pattern, "COUNT", count))]
    info, reply = await node.run(commands, math.inf, writes=False)
    match reply:
        case [bytes() as after, [*names]] if isinstance(info, bytes) and after.isdigit():
            return _run(info), int(after), names
    raise failed(info if isinstance(info, Exception) else reply)


def _run(info: Any) -> str:
    _, _, rest = info.partition(b"run_id:")
    return str(rest[:40].decode())


def _position(scan: Scan) -> Position:
    if scan.position is None:
        return Position(to_text(of_split(scan.split)))
    try:
        position = msgspec.json.decode(scan.position, type=Position)
        from_text(position.left)
        if position.part:
            from_text(position.part)
        if not 0 <= position.cursor < 2**64:
            raise ValueError
    except ValueError:  # msgspec's own errors too
        raise MalformedRequest("no position of this scan") from None
    return position
