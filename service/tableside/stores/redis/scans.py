"""Scans of a table in no order: SCAN over the names with the table's prefix, node by node and page by page.

SCAN returns every key that exists throughout the scan if its cursors are followed on one run of a server. A position
therefore contains the server's run id and a cursor. After a restart of the server, or a failover to another node, the
scan of that node starts again. Slots of a cluster are done if the scanned node owned them both before and after the
scan.

If a page has no room for all names of a cursor, the position also contains digests of the returned names, which the
next page skips when it repeats the SCAN. While the records of one SCAN are added to the page, Redis already reads
those of the next one, and executes the SCAN after it.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_digest

from ...core import (
    NOT_READ,
    PAGE_SEARCH_S,
    READ_BYTES_MAX,
    MalformedRequest,
    Outcome,
    Page,
    PageBuilder,
    Record,
    Results,
    Scan,
    StoreUnavailable,
    TableError,
)
from .connection import Node
from .errors import from_unexpected_reply
from .keys import ALL_SLOTS, KeyNames, NamedKey, format_slots, parse_slots, slot_of, slots_of_split
from .reads import SCRIPT_RECORDS_MAX, RecordReader
from .scripts import Command
from .servers import Servers

COUNT_MAX = 512
"""How many keys one SCAN inspects if many match. Also limits the digests in a position."""

COUNT_SPARSE_MAX = 8192
"""How many keys one SCAN inspects if few match."""

ROUNDS_MAX = 64
"""How many requests one page sends, whether they find records or not, unless PAGE_SEARCH_S ends it first."""

DIGEST_BYTES = 8

FIRST_VALUES = SCRIPT_RECORDS_MAX + 1
"""How many values to read first, when their size is unknown. The script would not return them in columns."""


def page_end() -> float:
    """Return the time of `time.monotonic` when a page that begins now has to end."""
    return time.monotonic() + PAGE_SEARCH_S


def rounds(ends_at: float) -> Iterator[int]:
    """Count the requests of one page until this time. The first is always sent."""
    for index in range(ROUNDS_MAX):
        if index and time.monotonic() >= ends_at:
            return
        yield index


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where to continue.

    `left` are the slots still to scan, and `part` are the ones that the current node's scan covers. `run` is the run id
    of the node. `count` is how many keys the last SCAN inspected. The next page begins with the same number. `given`
    are the digests of the names that the current cursor has already returned for this number of keys.
    """

    left: str
    part: str = ""
    run: str = ""
    cursor: int = 0
    given: bytes = b""
    count: int = 0

    def restarted(self) -> "Position":
        """Return the position at the start of the current node's scan."""
        return Position(self.left)

    def without(self, slots: frozenset[int]) -> "Position | None":
        """Return the position after the scan of these slots, or None if no slots are left."""
        left = parse_slots(self.left) - slots
        return Position(format_slots(left)) if left else None

    def to_bytes(self) -> bytes:
        """Return the position in its serialized form."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_bytes(text: bytes) -> "Position":
        """Parse the result of `to_bytes`. Raise MalformedRequest for anything else."""
        try:
            position = msgspec.json.decode(text, type=Position)
            parse_slots(position.left)
            if position.part:
                parse_slots(position.part)
            if not (0 <= position.cursor < 2**64 and 0 <= position.count <= COUNT_SPARSE_MAX):
                raise ValueError
        except ValueError:  # msgspec's own errors too
            raise MalformedRequest("the cursor does not belong to this scan") from None
        return position


class Keyspace:
    """The names of a server, or of the nodes of a cluster."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def start_node(self, position: Position) -> tuple[Node, Position]:
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

    async def finished_slots(self, node: Node, position: Position) -> frozenset[int]:
        """Return the slots that are done after a node's last cursor."""
        return parse_slots(position.part) & await self._owned_slots(node)

    async def _owned_slots(self, node: Node) -> frozenset[int]:
        """Return the slots that a node serves and is not migrating to another node."""
        if not self._servers.is_cluster:
            return ALL_SLOTS
        [reply] = await node.send([_CLUSTER_NODES], 1, math.inf)
        if not isinstance(reply, bytes):
            raise from_unexpected_reply(reply)
        lines = [line.split() for line in reply.decode().splitlines()]
        words = [word for line in lines if "myself" in line[2].split(",") for word in line[8:]]
        migrating = {int(word[1:].partition("-")[0]) for word in words if "->-" in word}
        owned = ",".join(word for word in words if not word.startswith("["))
        return parse_slots(owned) - migrating if owned else frozenset()


_CLUSTER_NODES = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n"


ScanReply: TypeAlias = tuple[str, int, list[bytes]]
"""The server's run id, the next cursor, and the names from SCAN."""


async def scan_node(node: Node, cursor: int, pattern: str, count: int) -> ScanReply:
    """Send SCAN to a node, and return its reply."""
    commands = [Command(("INFO", "server")), Command(("SCAN", cursor, "MATCH", pattern, "COUNT", count))]
    info, reply = await node.run(commands, math.inf, writes=False)
    match reply:
        case [bytes() as next_cursor, [*names]] if isinstance(info, bytes) and next_cursor.isdigit():
            return _run_id(info), int(next_cursor), names
    raise from_unexpected_reply(info if isinstance(info, Exception) else reply)


def _run_id(info: Any) -> str:
    _, _, rest = info.partition(b"run_id:")
    return str(rest[:40].decode())


class Reading(msgspec.Struct, frozen=True):
    """Records to add to a page, and their outcomes if they are being read."""

    candidates: Sequence[NamedKey]
    outcomes: asyncio.Future[Sequence[Outcome]] | None = None


class NamedPageBuilder(PageBuilder):
    """Reads and collects the records of one page. `absent` are the records that were not there."""

    def __init__(self, scan: Scan, reads: RecordReader) -> None:
        super().__init__(scan)
        self.absent: list[NamedKey] = []
        self._scan = scan
        self._reads = reads

    def read_ahead(self, candidates: Sequence[NamedKey]) -> Reading:
        """Start to read records, while others are being read, if both probably fit into the page."""
        ahead = self.count > 0 and self.fits(2 * len(candidates))
        return Reading(candidates, asyncio.ensure_future(self._read(candidates)) if ahead else None)

    async def fill(self, reading: Reading) -> int:
        """Add records until the page is complete, and return the number of candidates that were processed."""
        candidates, taken = reading.candidates, 0
        if reading.outcomes is not None:
            taken = self._add(candidates, await reading.outcomes)
        while taken < len(candidates) and not self.complete:
            batch = candidates[taken : taken + self._read_count]
            taken += self._add(batch, await self._read(batch))
        return taken

    async def _read(self, candidates: Sequence[NamedKey]) -> Sequence[Outcome]:
        return await self._reads.get_names([name for name, _ in candidates], math.inf)

    def _add(self, candidates: Sequence[NamedKey], outcomes: Sequence[Outcome]) -> int:
        if isinstance(outcomes, Results) and self.add_all([key for _, key in candidates], outcomes):
            return len(candidates)
        for taken, ((name, key), outcome) in enumerate(zip(candidates, outcomes, strict=True)):
            if self.complete or outcome is NOT_READ:
                return taken
            if isinstance(outcome, TableError):
                raise outcome.of_scan(key)
            if isinstance(outcome, Record):
                self.add(key, outcome)
            else:
                self.absent.append((name, key))
        return len(candidates)

    def needs_more_than(self, count: int) -> bool:
        """Whether the page would have less than three quarters of its records after `count` more.

        The rest may take many SCANs.
        """
        return not self.complete and (self.room - count) * 4 > self._scan.limit

    def fits(self, count: int) -> bool:
        """Whether so many more records are probably within the limit of bytes."""
        return not self.count or count <= self._read_count

    @property
    def _read_count(self) -> int:
        """How many values to read in one call: as many as fit if they have the average size of those so far."""
        if not self.count:
            return FIRST_VALUES
        left_bytes = max(0, min(READ_BYTES_MAX, self.bytes_left))
        return 1 + left_bytes * self.count // max(1, self._scan.bytes_max - self.bytes_left)


async def read_page(scan: Scan, servers: Servers, names: KeyNames, reads: RecordReader) -> Page:
    """Read a page of a table in no particular order."""
    with closing(_PageScan(scan, Keyspace(servers), names, reads)) as page:
        return await page.read()


class _PageScan:
    """Reads one page.

    `_seen` are the names that SCAN has returned. `_ahead` is the next SCAN if it has been sent. `_pending` are the
    position of the last SCAN and its records, which are not in the page yet.
    """

    def __init__(self, scan: Scan, keyspace: Keyspace, names: KeyNames, reads: RecordReader) -> None:
        self._keyspace = keyspace
        self._names = names
        self._start = _start_position(scan)
        self._pattern = names.pattern(scan)
        self._page = NamedPageBuilder(scan, reads)
        self._count = self._start.count or min(scan.limit, COUNT_MAX)
        self._seen: set[bytes] = set()
        self._ahead: asyncio.Future[tuple[int, ScanReply]] | None = None
        self._pending: tuple[Position, Reading] | None = None

    async def read(self) -> Page:
        """Read the page."""
        position, node, stop, complete = self._start, None, None, False
        ends_at = page_end()
        for _ in rounds(ends_at):
            if node is None or not position.part:
                node, position = await self._keyspace.start_node(position)
            count, (run, cursor, names) = await (self._ahead or self._scan_names(node, position.cursor))
            self._ahead = None
            if position.run not in ("", run):
                position, node = position.restarted(), None
                continue
            position = replace(position, run=run, count=count)
            if cursor and self._page.fits(2 * len(names)) and self._needs_more_than(len(names)):
                self._choose_count(len(names))
                self._ahead = asyncio.ensure_future(self._scan_names(node, cursor))
                await asyncio.sleep(0)  # Send it: Redis executes it while the names are parsed.
            names = self._fresh(names, position)
            fresh = table_records(names, self._names, position)
            if len(fresh) > self._room and (self._pending or self._page.count):
                break
            if len(fresh) > self._room and self._count > 1 and time.monotonic() < ends_at:
                self._count = max(1, self._count // 4)
                continue
            if self._ahead is None:
                self._choose_count(len(fresh))
            self._seen.update(names)
            before, self._pending = self._pending, (position, self._page.read_ahead(fresh))
            if before is not None and (stop := await self._add(*before)) is not None:
                break
            if cursor:
                position = replace(position, cursor=cursor, given=b"")
            elif (after := position.without(await self._keyspace.finished_slots(node, position))) is None:
                complete = True
                break
            else:
                position, node = after, None
            if not self._needs_more_than(0):
                break
        if stop is None and self._pending is not None:
            stop = await self._add(*self._pending)
        if self._sent:  # The page does not need these replies, but the connections can then be used again.
            await asyncio.wait(self._sent)
        return Page(self._page.records, None if complete and stop is None else (stop or position).to_bytes())

    def close(self) -> None:
        """Cancel requests that are still in progress."""
        for future in self._sent:
            future.cancel()
            if future.done() and not future.cancelled():
                future.exception()  # Otherwise asyncio logs it.

    @property
    def _sent(self) -> list[asyncio.Future[Any]]:
        reading = None if self._pending is None else self._pending[1].outcomes
        return [future for future in (self._ahead, reading) if future is not None]

    @property
    def _pending_count(self) -> int:
        return 0 if self._pending is None else len(self._pending[1].candidates)

    @property
    def _room(self) -> int:
        return self._page.room - self._pending_count

    def _needs_more_than(self, count: int) -> bool:
        return self._page.needs_more_than(self._pending_count + count)

    def _choose_count(self, found: int) -> None:
        """Choose how many keys the next SCAN inspects, after the last one has found so many.

        A page needs three quarters of its records. If it had no room for all of the next SCAN, that would be in vain.
        """
        wanted = max(1, min((self._room - found) * 3 // 4, COUNT_MAX))
        self._count = max(1, min(self._count * wanted // found if found else self._count * 2, COUNT_SPARSE_MAX))

    async def _scan_names(self, node: Node, cursor: int) -> tuple[int, ScanReply]:
        """Send SCAN. Return how many keys it inspects, and the reply."""
        count = self._count
        return count, await scan_node(node, cursor, self._pattern, count)

    async def _add(self, position: Position, reading: Reading) -> Position | None:
        """Add the records of a SCAN to the page. If the page has no room for all, return the position of the others."""
        taken = await self._page.fill(reading)
        if taken == len(reading.candidates):
            return None
        given = b"".join(xxh3_64_digest(name.encode()) for name, _ in reading.candidates[:taken])
        return replace(position, given=position.given + given)

    def _fresh(self, names: list[bytes], position: Position) -> list[bytes]:
        """Return names from SCAN without names that were already returned."""
        given = position.given
        digests = {given[at : at + DIGEST_BYTES] for at in range(0, len(given), DIGEST_BYTES)}
        fresh = [name for name in names if xxh3_64_digest(name) not in digests] if digests else names
        return fresh if self._seen.isdisjoint(fresh) else [name for name in fresh if name not in self._seen]


def table_records(names: Sequence[bytes], table: KeyNames, position: Position) -> Sequence[NamedKey]:
    """Return the records of a table among names from SCAN, each once, in the slots that the scan covers."""
    part, found = parse_slots(position.part), table.named_keys(list(dict.fromkeys(names)))
    return found if part is ALL_SLOTS else [(name, key) for name, key in found if slot_of(name) in part]


def _start_position(scan: Scan) -> Position:
    if scan.position is None:
        return Position(format_slots(slots_of_split(scan.split)))
    return Position.from_bytes(scan.position)
