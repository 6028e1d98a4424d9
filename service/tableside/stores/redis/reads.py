"""Reads for Gets, writes and scans: many records in one round trip per node.

Large reads use MGET (GETs on a cluster), followed by a check whether any key of the database has an expiry. A script
that also returns the expiry and type of each record is used for small reads, and for databases with expiring keys.
"""

import time
from collections.abc import Sequence
from functools import partial
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ...core import COLUMN_BYTES_MAX, BoundedReads, Key, Outcome, ReadBudget, RecordColumns, TableError
from .connection import EXPIRY_UNKNOWN
from .driver import Reply
from .errors import from_unexpected_reply
from .keys import KeyNames, slot_of
from .name_column import NameColumn
from .records import read, read_all, read_columns, wrong_type
from .scripts import READ_SCRIPT, Command, PackedWords, script_call
from .topology import Servers

SCRIPT_RECORDS_MAX = 16
"""Reads of up to this many records are faster with the script."""

EXPIRY_CHECK_S = 1.0
"""How long to assume that a database has expiring records after it had some."""


class ScriptResult(msgspec.Struct, frozen=True):
    """The reply of one call of the script.

    `expiries` is empty if no record expires. `wrong_types` are the positions of keys that are not strings.
    """

    values: list[bytes | None]
    expiries: list[int]
    wrong_types: frozenset[int]

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of Gets."""
        outcomes: list[Outcome] = read_all(self.values) if not self.expiries else []
        if self.expiries:
            outcomes = [*map(read, self.values, self.expiries)]
        for position in self.wrong_types:
            outcomes[position] = wrong_type()
        return outcomes


class RecordReader:
    """Reads records of one table."""

    def __init__(self, servers: Servers, names: KeyNames) -> None:
        self._servers = servers
        self._names = names
        self._expiring_until = 0.0
        self._bounded = BoundedReads()

    async def get(self, keys: Sequence[Key], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets of these keys."""
        return await self.get_names(self._names.for_keys(keys), until)

    async def get_names(self, names: Sequence[str], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets of these names of Redis keys, in columns if the names are in a column.

        Large records are read in several calls.
        """
        if len(names) == 1:
            return await self._get_by_script(names, until)
        return await self._bounded.read(names, partial(self._get_names, until))

    async def _get_names(self, until: float, names: Sequence[str], budget: ReadBudget) -> Sequence[Outcome]:
        if len(names) <= SCRIPT_RECORDS_MAX or time.monotonic() < self._expiring_until:
            return await self._get_by_script(names, until, budget)
        commands = self._plain_commands(names)
        replies = await self._servers.read(commands, until, budget)
        retried: list[int] = []
        outcomes: Sequence[Outcome] | None = None
        if isinstance(names, NameColumn):
            outcomes = _columns(commands, replies, budget.spent_bytes)
        if outcomes is None:
            outcomes, retried = self._parse_replies(commands, replies)
        if not self._servers.is_cluster:
            retried += await self._absent_names_that_exist(names, _absent(outcomes, retried), until)
        if retried:
            outcomes = list(outcomes)
            exact = await self._get_by_script([names[position] for position in retried], until, budget)
            for position, outcome in zip(retried, exact, strict=True):
                outcomes[position] = outcome
        return outcomes

    def _parse_replies(self, commands: Sequence[Command], replies: Sequence[Reply]) -> tuple[list[Outcome], list[int]]:
        """Return the outcomes, and the positions of records that may expire, which must be read by the script."""
        outcomes: list[Outcome] = []
        expiring: list[int] = []
        for command, reply in zip(commands, replies, strict=True):
            count = len(command.positions)
            if reply is EXPIRY_UNKNOWN:
                expiring += command.positions
                outcomes += [None] * count
                self._expiring_until = time.monotonic() + EXPIRY_CHECK_S
            else:
                outcomes += self._parse_values(reply, count)
        return outcomes, expiring

    async def read_by_script(
        self, names: Sequence[str], until: float, side_names: Sequence[str] = (), budget: ReadBudget | None = None
    ) -> list[tuple[Sequence[int], ScriptResult | TableError]]:
        """Read by the script and return the positions and result of each call, NOT_READ beyond the `budget`.

        If there are `side_names`, the result also contains the side key of each position, after the records.
        """
        groups = self._servers.groups(names)
        commands = [
            script_call(
                READ_SCRIPT,
                [keys[position] for keys in (names, side_names) if keys for position in group.positions],
                (),
                group.positions,
                group.slot,
            )
            for group in groups
        ]
        replies = await self._servers.run(commands, until, budget=budget)
        keys_per_position = 2 if side_names else 1
        return [
            (command.positions, _parse_result(reply, keys_per_position * len(command.positions)))
            for command, reply in zip(commands, replies, strict=True)
        ]

    async def _get_by_script(
        self, names: Sequence[str], until: float, budget: ReadBudget | None = None
    ) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(names)
        for positions, found in await self.read_by_script(names, until, budget=budget):
            results = [found] * len(positions) if isinstance(found, TableError) else found.outcomes()
            for position, outcome in zip(positions, results, strict=True):
                outcomes[position] = outcome
        return outcomes

    def _plain_commands(self, names: Sequence[str]) -> list[Command]:
        if self._servers.is_cluster:
            return [Command(("GET", name), (index,), slot_of(name)) for index, name in enumerate(names)]
        return [_mget(names, group.positions) for group in self._servers.groups(names)]

    def _parse_values(self, reply: Reply, count: int) -> list[Outcome]:
        values = [reply] if self._servers.is_cluster and (reply is None or type(reply) is bytes) else reply
        if type(values) is not list or len(values) != count:
            return [from_unexpected_reply(reply)] * count
        try:
            return read_all(values)
        except TypeError:  # Other types than strings and nil: not a reply of Redis.
            return [from_unexpected_reply(None)] * count

    async def _absent_names_that_exist(self, names: Sequence[str], absent: Sequence[int], until: float) -> list[int]:
        """Return the positions of keys that MGET returned as `absent` but exist: lists, hashes and other types."""
        groups = self._servers.groups([names[index] for index in absent])
        parts = [[absent[position] for position in group.positions] for group in groups]
        commands = [Command(("EXISTS",), part, names=[names[index] for index in part]) for part in parts]
        replies = await self._servers.run(commands, until) if commands else []
        return list(chain.from_iterable(part for part, reply in zip(parts, replies, strict=True) if reply != 0))


def _mget(names: Sequence[str], positions: Sequence[int]) -> Command:
    part = names[positions[0] : positions[-1] + 1]
    if isinstance(part, NameColumn):
        return Command(("MGET",), positions, packed_words=PackedWords(len(part), 0, (part.packed(),)))
    return Command(("MGET",), positions, names=part)


def _columns(commands: Sequence[Command], replies: Sequence[Reply], size_bytes: float) -> RecordColumns | None:
    """Return the outcomes in columns, or None if they are too long, may expire, or need another treatment."""
    if size_bytes > COLUMN_BYTES_MAX:
        return None
    raws: list[bytes | None] = []
    for command, reply in zip(commands, replies, strict=True):
        if type(reply) is not list or len(reply) != len(command.positions):
            return None
        raws += reply
    try:
        return read_columns(raws)
    except (TypeError, pa.ArrowException):  # Other types than strings and nil: not a reply of Redis.
        return None


def _absent(outcomes: Sequence[Outcome], excluded: Sequence[int]) -> list[int]:
    """Return the positions of absent records."""
    if isinstance(outcomes, RecordColumns):
        return list(pc.indices_nonzero(outcomes.values.is_null()).to_pylist()) if outcomes.absent_count else []
    others = set(excluded)
    return [index for index, outcome in enumerate(outcomes) if outcome is None and index not in others]


def _parse_result(reply: Reply, count: int) -> ScriptResult | TableError:
    match reply:
        case [[*values], [*expiries], [*wrong_types]] if len(values) == count and len(expiries) in (0, count):
            return ScriptResult(values, expiries, frozenset(position - 1 for position in wrong_types))
    return from_unexpected_reply(reply)
