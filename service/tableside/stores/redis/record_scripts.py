"""Calls of the scripts that write records, with the arguments for the index of a table that has one."""

from collections.abc import Sequence

import msgspec

from ...core import Key, TableError
from .driver import Reply
from .errors import from_unexpected_reply
from .keys import side_key, with_side_keys
from .partition_index import PartitionIndex
from .scripts import Command, Script, script_call
from .write_scripts import INDEX_SCRIPT, INDEXED_SCRIPTS, PUT_SCRIPT, SCRIPTS


class RecordBatch(msgspec.Struct, frozen=True):
    """Records for a script: the name of the Redis key, the record's key, and the script's arguments for each."""

    names: Sequence[str]
    keys: Sequence[Key]
    arguments: Sequence[Sequence[str | bytes | int]]


class RecordScripts:
    """The scripts that write records of one table, and keep its index, if it has one, in agreement."""

    def __init__(self, index: PartitionIndex | None) -> None:
        self._index = index
        self._scripts = SCRIPTS if index is None else INDEXED_SCRIPTS

    @property
    def indexed(self) -> bool:
        """Whether the table has an index."""
        return self._index is not None

    def put(self, names: Sequence[str], values: Sequence[bytes | int], positions: Sequence[int], slot: int) -> Command:
        """Return the command that puts values, followed by times to live, into a table without an index."""
        return Command((), positions, slot, PUT_SCRIPT, with_side_keys(names), values)

    def put_once(self, batch: RecordBatch, part: Sequence[int], slot: int) -> Command:
        """Return the command that puts those values of a part of the batch whose tokens are new."""
        return self._call(self._scripts.put_once, batch, part, slot, part)

    def write(self, batch: RecordBatch, part: Sequence[int], slot: int) -> Command:
        """Return the command that writes a part of the batch."""
        return self._call(self._scripts.write, batch, part, slot, part)

    def replace(self, batch: RecordBatch, part: Sequence[int], slot: int) -> Command:
        """Return the command that writes those records of a part of the batch that are as expected."""
        return self._call(self._scripts.replace, batch, part, slot, part)

    def edit(self, batch: RecordBatch, part: Sequence[int], slot: int, positions: Sequence[int]) -> Command:
        """Return the command that edits a part of the batch, and has these positions in the caller's batch."""
        return self._call(self._scripts.edit, batch, part, slot, positions)

    def index(self, names: Sequence[str], keys: Sequence[Key], part: Sequence[int], slot: int) -> Command:
        """Return the command that makes the index agree with a part of the records."""
        return self._call(INDEX_SCRIPT, RecordBatch(names, keys, [()] * len(names)), part, slot, part)

    def _call(
        self, script: Script, batch: RecordBatch, part: Sequence[int], slot: int, positions: Sequence[int]
    ) -> Command:
        names, arguments = batch.names, batch.arguments
        if self._index is None:
            sent = with_side_keys([names[at] for at in part])
            words = [word for at in part for word in arguments[at]]
        else:
            entries = list(zip(part, self._index.entries(batch.keys[at] for at in part), strict=True))
            sent = [key for at, (*index, _) in entries for key in (names[at], side_key(names[at]), *index)]
            words = [word for at, (_, _, member) in entries for word in (*arguments[at], member)]
        return script_call(script, sent, words, positions, slot)


def script_results(reply: Reply, count: int) -> list[int | TableError]:
    """Return the result for each record from the reply of a script that writes: an integer or an error."""
    if type(reply) is not list or len(reply) != count:
        return [from_unexpected_reply(reply, "unknown")] * count
    if set(map(type, reply)) <= {int}:
        return reply
    return [result if type(result) is int else from_unexpected_reply(result, "unknown") for result in reply]
