"""Scans: SCAN over the names with the table's prefix, page by page.

SCAN returns every key that exists throughout the scan if its cursors are followed on one run of a server. A position
therefore contains the server's run id and a cursor. If a page had no room for all names of a cursor, the position also
contains digests of the returned names, which the next page skips when it repeats the cursor. After a restart of the
server, or a failover to another node, the scan of that node starts again. Slots of a cluster are done if the scanned
node owned them both before and after the scan.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_digest

from ...core import Key, MalformedRequest, Outcome, Page, Record, Scan, StoreUnavailable, TableError
from .connection import Node
from .errors import from_unexpected_reply
from .keys import KeyNames, slot_of
from .reads import RecordReader
from .scripts import Command
from .topology import ALL_SLOTS, Servers, format_slots, parse_slots, slots_of_split

COUNT_MAX = 512
"""How many keys one SCAN inspects if many belong to the table. Also limits the digests in a position."""

COUNT_SPARSE_MAX = 8192
"""How many keys one SCAN inspects if few belong to the table."""

ROUNDS_MAX = 64
"""How many SCANs one page sends, whether they find records or not."""

FIRST_VALUES = 16
"""How many values to read first, when their size is unknown."""

DIGEST_BYTES = 8


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a scan continues.

    `left` are the slots still to scan, `part` those of them that the current node's scan covers, `run` is the run id of
    the node, and `given` are the digests of the names that the current cursor has already returned.
    """

    left: str
    part: str = ""
    run: str = ""
    cursor: int = 0
    given: bytes = b""

    def restarted(self) -> "Position":
        """Return the position at the start of the current node's scan."""
        return Position(self.left)


class TableScanner:
    """Reads pages of one table."""

    def __init__(self, servers: Servers, names: KeyNames, reads: RecordReader) -> None:
        self._servers = servers
        self._names = names
        self._reads = reads

    async def page(self, scan: Scan) -> Page:
        """Read a page in no particular order."""
        position, page = _parse_position(scan), _PageBuilder(scan)
        pattern, count, node = self._names.pattern(scan), min(scan.limit, COUNT_MAX), None
        for _ in range(ROUNDS_MAX):
            if node is None or not position.part:
                node, position = await self._start_node(position)
            run, cursor, names = await _scan_node(node, position.cursor, pattern, count)
            if position.run not in ("", run):
                position, node = position.restarted(), None
                continue
            position = replace(position, run=run)
            fresh = self._fresh(names, position, page)
            if len(fresh) > page.room and (page.records or count > 1):
                if page.records:
                    break
                count = max(1, count // 4)
                continue
            taken = await self._take(fresh, page)
            if taken < len(fresh):
                given = b"".join(xxh3_64_digest(name) for name, _ in fresh[:taken])
                position = replace(position, given=position.given + given)
                break
            if cursor:
                position = replace(position, cursor=cursor, given=b"")
            elif (after := await self._next_part(node, position)) is None:
                return Page(page.records, None)
            else:
                position, node = after, None
            if page.nearly_full:
                break
            count = max(1, min(page.room, COUNT_MAX)) if fresh else min(count * 2, COUNT_SPARSE_MAX)
        return Page(page.records, msgspec.json.encode(position))

    async def _start_node(self, position: Position) -> tuple[Node, Position]:
        """Return the node to scan, and the position with the slots that its scan covers."""
        remaining = parse_slots(position.part or position.left)
        nodes = await self._servers.nodes(math.inf)
        node, slots = max(nodes, key=lambda one: len(one[1] & remaining), default=(None, frozenset[int]()))
        if node is None or not slots & remaining:
            raise StoreUnavailable("no node serves some slots of the Redis Cluster")
        if position.part:
            return node, position
        part = remaining & await self._owned_slots(node)
        if not part:
            raise StoreUnavailable("slots of the Redis Cluster are migrating to another node")
        return node, replace(position, part=format_slots(part))

    async def _next_part(self, node: Node, position: Position) -> Position | None:
        """Return the position after the scan of a node is complete; None if all slots are done."""
        left = parse_slots(position.left) - (parse_slots(position.part) & await self._owned_slots(node))
        return Position(format_slots(left)) if left else None

    async def _owned_slots(self, node: Node) -> frozenset[int]:
        """Return the slots that a node serves and is not migrating to another node."""
        if not self._servers.is_cluster:
            return ALL_SLOTS
        [reply] = await node.send(_CLUSTER_NODES, 1, math.inf)
        if not isinstance(reply, bytes):
            raise from_unexpected_reply(reply)
        lines = [line.split() for line in reply.decode().splitlines()]
        words = [word for line in lines if "myself" in line[2].split(",") for word in line[8:]]
        migrating = {int(word[1:].partition("-")[0]) for word in words if "->-" in word}
        owned = ",".join(word for word in words if not word.startswith("["))
        return parse_slots(owned) - migrating if owned else frozenset()

    def _fresh(self, names: Sequence[bytes], position: Position, page: "_PageBuilder") -> list[tuple[bytes, Key]]:
        """Return the names of the table's records among names from SCAN, without names that were already returned."""
        part, given = parse_slots(position.part), position.given
        digests = {given[at : at + DIGEST_BYTES] for at in range(0, len(given), DIGEST_BYTES)}
        fresh: dict[bytes, Key] = {}
        for name in names:
            if name in page.names or (digests and xxh3_64_digest(name) in digests):
                continue
            key = self._names.to_key(name)
            if key is not None and (part is ALL_SLOTS or slot_of(name.decode()) in part):
                fresh[name] = key
        return list(fresh.items())

    async def _take(self, fresh: Sequence[tuple[bytes, Key]], page: "_PageBuilder") -> int:
        """Read records until the page is complete, and return the number of names that were processed."""
        taken = 0
        while taken < len(fresh) and not page.complete:
            batch = fresh[taken : taken + page.read_count]
            outcomes = await self._reads.get_names([name.decode() for name, _ in batch], math.inf)
            taken += page.add(batch, outcomes)
        return taken


class _PageBuilder:
    """Collects the records of one page."""

    def __init__(self, scan: Scan) -> None:
        self.records: list[tuple[Key, Record]] = []
        self.names: set[bytes] = set()
        self._scan = scan
        self._size_bytes = 0

    def add(self, names: Sequence[tuple[bytes, Key]], outcomes: Sequence[Outcome]) -> int:
        """Add records until the page is complete, and return the number of names that were processed."""
        for taken, ((name, key), outcome) in enumerate(zip(names, outcomes, strict=True)):
            if self.complete:
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
        """How many more records the page may have."""
        return self._scan.limit - len(self.records)

    @property
    def complete(self) -> bool:
        """Whether the page has reached a limit of the scan."""
        return self.room <= 0 or self._size_bytes > self._scan.bytes_max

    @property
    def nearly_full(self) -> bool:
        """Whether to end the page now: it has three quarters of its records, and the rest may take many SCANs."""
        return self.complete or self.room * 4 <= self._scan.limit

    @property
    def read_count(self) -> int:
        """How many values to read at once: as many as fit if they have the average size of those so far."""
        if not self.records:
            return FIRST_VALUES
        left_bytes = max(0, self._scan.bytes_max - self._size_bytes)
        return 1 + left_bytes * len(self.records) // max(1, self._size_bytes)


_CLUSTER_NODES = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n"


async def _scan_node(node: Node, cursor: int, pattern: str, count: int) -> tuple[str, int, list[bytes]]:
    """Return the server's run id, the next cursor, and the names from SCAN."""
    commands = [Command(("INFO", "server")), Command(("SCAN", cursor, "MATCH", pattern, "COUNT", count))]
    info, reply = await node.run(commands, math.inf, writes=False)
    match reply:
        case [bytes() as next_cursor, [*names]] if isinstance(info, bytes) and next_cursor.isdigit():
            return _run_id(info), int(next_cursor), names
    raise from_unexpected_reply(info if isinstance(info, Exception) else reply)


def _run_id(info: Any) -> str:
    _, _, rest = info.partition(b"run_id:")
    return str(rest[:40].decode())


def _parse_position(scan: Scan) -> Position:
    if scan.position is None:
        return Position(format_slots(slots_of_split(scan.split)))
    try:
        position = msgspec.json.decode(scan.position, type=Position)
        parse_slots(position.left)
        if position.part:
            parse_slots(position.part)
        if not 0 <= position.cursor < 2**64:
            raise ValueError
    except ValueError:  # msgspec's own errors too
        raise MalformedRequest("the cursor does not belong to this scan") from None
    return position
