"""Removes a table: SCAN over the names of every node, and UNLINK of those that belong to the table.

One SCAN finds records as well as side keys and indexes, because all their names contain the table's prefix. A drop that
was interrupted leaves a smaller table, which another drop removes.
"""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from .errors import from_unexpected_reply
from .keys import ALL_SLOTS, KeyNames, format_slots
from .scans import COUNT_MAX, COUNT_SPARSE_MAX, Keyspace, Position, scan_node
from .scripts import Command
from .servers import Servers

UNLINK_MAX_S = 5.0
"""How long the removal of the names from one SCAN may take."""


async def drop(servers: Servers, table: KeyNames) -> None:
    """Remove a table's records, side keys and indexes. Raise a TableError if that fails."""
    keyspace = Keyspace(servers)
    position: Position | None = Position(format_slots(ALL_SLOTS))
    node, count = None, COUNT_MAX
    while position is not None:
        if node is None:
            node, position = await keyspace.start_node(position)
        run, cursor, names = await scan_node(node, position.cursor, table.every_pattern, count)
        if position.run not in ("", run):
            position, node = position.restarted(), None
            continue
        owned = [name.decode() for name in names if table.owns(name)]
        await _unlink(servers, owned)
        count = COUNT_MAX if owned else min(count * 2, COUNT_SPARSE_MAX)
        if cursor:
            position = replace(position, run=run, cursor=cursor)
        else:
            position, node = position.without(await keyspace.finished_slots(node, position)), None


async def _unlink(servers: Servers, names: Sequence[str]) -> None:
    groups = servers.groups(names)
    commands = [Command(("UNLINK", *(names[at] for at in group)), (), slot) for group, slot in groups]
    replies = await servers.run(commands, time.monotonic() + UNLINK_MAX_S, writes=True) if commands else []
    for reply in replies:
        if type(reply) is not int:
            raise from_unexpected_reply(reply, applied="unknown")
