"""Iterates over the names of all Redis keys that match a pattern, with SCAN, node by node.

SCAN returns every key that exists throughout the scan if its cursors are followed on one run of a server. A position
therefore contains the server's run id and a cursor. After a restart of the server, or a failover to another node, the
scan of that node starts again. Slots of a cluster are done if the scanned node owned them both before and after the
scan.
"""

import math
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ...core import PAGE_SEARCH_S, MalformedRequest, StoreUnavailable
from .connection import Node
from .errors import from_unexpected_reply
from .scripts import Command
from .topology import ALL_SLOTS, Servers, format_slots, parse_slots

COUNT_MAX = 512
"""How many keys one SCAN inspects if many match. Also limits the digests in a position."""

COUNT_SPARSE_MAX = 8192
"""How many keys one SCAN inspects if few match."""

ROUNDS_MAX = 64
"""How many requests one page sends, whether they find records or not, unless PAGE_SEARCH_S ends it first."""


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
