"""The format of a record in Redis, and of its side key, which contains what the record remembers of its writes.

A record is the value's JSON text, followed by sixteen characters of JSON whitespace: a fixed marker of four characters
and twelve random characters. JSON parsers ignore it. The random characters make the bytes of every write different, so
a digest of the bytes is an exact etag and no version must be stored. The marker shows that the text is canonical.
Another tool wrote text without it. Such text is parsed as JSON.

A side key is JSON: `[1, {"": order}, ["writer", sequence], ...]`. The first element is 0 for the tombstone of a deleted
record. The orders follow, if it has any, then the tokens of its writers, the latest writer last.

Many records are read in one round trip per node. Large reads use MGET (GETs on a cluster), followed by a check whether
any key of the database has an expiry. A script that also returns the expiry and type of each record is used for small
reads, and for databases with expiring keys.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from struct import Struct
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_hexdigest

from ...core import (
    ARROW_RECORDS_MIN,
    NO_MEMORY,
    Batch,
    BoundedReads,
    Memory,
    Outcome,
    ReadBudget,
    Record,
    RecordUnreadable,
    Results,
    Stored,
    TableError,
    Token,
    encode_foreign,
    etag_column,
    joined_cells,
    shared,
)
from .connection import EXPIRY_UNKNOWN
from .errors import WRONG_TYPE, from_unexpected_reply
from .keys import slot_of
from .scripts import FAILURE, Command, Script, words_at
from .servers import Result, Servers, in_order

SCRIPT_RECORDS_MAX = 16
"""Reads of up to this many records are faster with the script."""

EXPIRY_CHECK_S = 1.0
"""How long to assume that a database has expiring records after it had some."""

_MARKER = b"\r\t\r\t"
_RANDOM_LENGTH = 12
_SUFFIX_LENGTH = len(_MARKER) + _RANDOM_LENGTH
_VALUE_END = b"}" + _MARKER
_RANDOM = Struct(f"{_RANDOM_LENGTH}s")
_WHITESPACE = bytes(b" \t\n\r"[byte % 4] for byte in range(256))


def pack_all(values: Sequence[bytes]) -> list[bytes]:
    """Return the bytes of records, which differ in each call."""
    random = os.urandom(_RANDOM_LENGTH * len(values)).translate(_WHITESPACE)
    return list(map(_MARKER.join, zip(values, chain.from_iterable(_RANDOM.iter_unpack(random)), strict=True)))


etag_of: Callable[[bytes], str] = xxh3_128_hexdigest
"""Returns the etag of a record's bytes."""


def value_of(raw: bytes) -> bytes:
    """Return the value of a record's bytes that `pack_all` has returned."""
    return raw[:-_SUFFIX_LENGTH]


def read_all(
    raws: Sequence[bytes | None], expiries_ms: Sequence[int], failed: Mapping[int, TableError]
) -> Sequence[Outcome]:
    """Return the outcomes of Gets. `expiries_ms` is empty if no record expires. Those in `failed` have no value."""
    columns = _read_together(raws) if len(raws) >= ARROW_RECORDS_MIN else None
    if columns is None:
        each = zip(raws, expiries_ms or repeat(0), strict=False)
        return [failed.get(at) or _read(raw, expires_ms) for at, (raw, expires_ms) in enumerate(each)]
    return Results(Record, columns | ({"expires_ms": expiries_ms} if any(expiries_ms) else {}), failed)


def _read_together(raws: Sequence[bytes | None]) -> dict[str, Any] | None:
    """Return the values and etags of many records, or None if another tool has written one."""
    records = pa.array(raws, pa.binary())
    count = len(raws) - records.null_count
    starts = joined_cells(pc.binary_slice(records, 0, 1)).tobytes()
    ends = joined_cells(pc.binary_slice(records, -_SUFFIX_LENGTH - 1, -_RANDOM_LENGTH)).tobytes()
    if starts != b"{" * count or ends != _VALUE_END * count:
        return None
    hashed: Sequence[Any] = [raw or b"" for raw in raws] if records.null_count else raws
    etags = etag_column("".join(map(etag_of, hashed)), records)
    return {"value": pc.binary_slice(records, 0, -_SUFFIX_LENGTH), "etag": etags}


def _read(raw: bytes | None, expires_ms: int) -> Record | RecordUnreadable | None:
    try:
        return None if raw is None else Record(_value(raw), etag_of(raw), expires_ms)
    except RecordUnreadable as error:
        return error.with_traceback(None)


def stored(raw: bytes | None, expires_ms: int, side: bytes | None) -> Stored | RecordUnreadable | None:
    """Return the current record for a write. `side` is its side key, None if that is absent or was not read."""
    deleted, memory = False, NO_MEMORY
    try:
        deleted, memory = parse_side(side)
        if raw is not None:
            return Stored(_value(raw), etag_of(raw), expires_ms, memory)
    except RecordUnreadable as error:
        error.memory = memory
        return error
    return Stored(None, "", 0, memory) if memory.orders or (deleted and memory) else None


def wrong_type(side: bytes | None = None) -> RecordUnreadable:
    """Return the error for a Redis key that is a list, a hash or another type. `side` is its side key, if read."""
    error = RecordUnreadable(WRONG_TYPE)
    with contextlib.suppress(RecordUnreadable):
        _, error.memory = parse_side(side)
    return error


def _value(raw: bytes) -> bytes:
    if raw[-_SUFFIX_LENGTH - 1 : -_RANDOM_LENGTH] == _VALUE_END and raw[:1] == b"{":
        return raw[:-_SUFFIX_LENGTH]
    return encode_foreign(raw)


# Side keys

_INVALID = "another tool wrote the record's side key, and it does not contain orders and writers' tokens"

_SIMPLE_WRITER = re.compile(r"[ !#-\[\]-~]+")  # printable ASCII without quotes and backslashes: no escapes in JSON

_decode = msgspec.json.Decoder(list[int | dict[str, int] | tuple[str, int]]).decode


def pack_side(stored: Stored | None) -> bytes:
    """Return the bytes of a record's side key, none if it remembers nothing."""
    if stored is None or not (memory := stored.memory):
        return b""
    orders = [msgspec.Raw(memory.orders)] if memory.orders else []
    return msgspec.json.encode([0 if stored.value is None else 1, *orders, *memory.writers])


def parse_side(side: bytes | None) -> tuple[bool, Memory]:
    """Return whether a side key is that of a tombstone, and what it remembers. Raise RecordUnreadable if invalid."""
    if not side:
        return False, NO_MEMORY
    try:
        deleted, *elements = _decode(side)
        orders = msgspec.json.encode(elements.pop(0)) if elements and isinstance(elements[0], dict) else b""
        if not all(isinstance(element, tuple) for element in elements):
            raise ValueError
    except (msgspec.DecodeError, ValueError):
        raise RecordUnreadable(_INVALID) from None
    return deleted == 0, Memory(cast("tuple[tuple[str, int], ...]", tuple(elements)), orders)


def side_elements(writes: Batch) -> Sequence[bytes]:
    """Return the element by which each write is remembered, empty for none, or one for all. Tokens must be simple."""
    tokens, orders = shared(writes.cells("token")), shared(writes.cells("order"))
    if orders == [None]:
        return list(map(_token, tokens))
    if tokens == [None]:
        return list(map(_order, orders))
    both = zip(writes.cells("token"), writes.cells("order"), strict=True)
    return [b",".join(filter(None, (_order(order), _token(token)))) for token, order in both]


def _token(token: Token | None) -> bytes:
    return b"" if token is None else b'["%b",%d]' % (token.writer.encode(), token.sequence)


def _order(order: int | None) -> bytes:
    return Memory.of_put(None, order).orders


def is_simple(token: Token) -> bool:
    """Return whether a script can compare the token with those of a side key."""
    return _SIMPLE_WRITER.fullmatch(token.writer) is not None


# Reads of many records

READ = Script(
    FAILURE
    + """
-- Returns three lists: the values (nil: absent), their expiries in Unix ms (empty if none expires), and the positions
-- of keys that are not strings. PEXPIRETIME returns -2 for an absent key.
local values, expiries, wrong_types, expiring = redis.pcall('MGET', unpack(KEYS)), {}, {}, false
if values.err then return failure(values) end
for index, key in ipairs(KEYS) do
  local expires = redis.call('PEXPIRETIME', key)
  if not values[index] and expires ~= -2 then wrong_types[#wrong_types + 1] = index end
  expiring = expiring or expires > 0
  expiries[index] = math.max(expires, 0)
end
return {values, expiring and expiries or {}, wrong_types}
"""
)


class RecordReader:
    """Reads records of one table by the names of their Redis keys."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._expiring_until = 0.0
        self._bounded = BoundedReads()

    async def get(self, names: Sequence[str], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets. Large records are read in several calls."""
        if len(names) == 1:
            return await self.read_by_script(names, until, _outcomes)
        return await self._bounded.read(names, partial(self._get, until))

    async def _get(self, until: float, names: Sequence[str], budget: ReadBudget) -> Sequence[Outcome]:
        if len(names) <= SCRIPT_RECORDS_MAX or time.monotonic() < self._expiring_until:
            return await self.read_by_script(names, until, _outcomes, budget=budget)
        if self._servers.is_cluster:
            parts: Sequence[Sequence[int]] = [(at,) for at in range(len(names))]
            commands = [Command(("GET", name), slot_of(name)) for name in names]
        else:
            parts = [part for part, _ in self._servers.groups(names)]
            commands = [Command(("MGET",), names=[names[part[0] : part[-1] + 1]]) for part in parts]
        raws, failed, retried = list[bytes | None](), dict[int, TableError](), list[int]()
        expected = {bytes, type(None)} if self._servers.is_cluster else {list}
        replies = await self._servers.run(commands, until, budget=budget, check_expiry=True)
        for positions, reply in zip(parts, replies, strict=True):
            found = [reply] if self._servers.is_cluster else reply
            if type(reply) in expected and len(found) == len(positions):
                raws += found
                continue
            raws += [None] * len(positions)
            if reply is EXPIRY_UNKNOWN:
                self._expiring_until = time.monotonic() + EXPIRY_CHECK_S
                retried += positions
            else:
                failed.update(dict.fromkeys(positions, from_unexpected_reply(reply)))
        try:
            results = read_all(raws, (), failed)
        except (TypeError, pa.ArrowInvalid):  # MGET returns only strings and nil.
            return [from_unexpected_reply(raws)] * len(names)
        if not self._servers.is_cluster and not all(raws):  # MGET returns nothing for lists and hashes.
            retried = [at for at, raw in enumerate(raws) if raw is None and at not in failed]
        if not retried:
            return results
        exact = await self.read_by_script([names[at] for at in retried], until, _outcomes, budget=budget)
        if not any(exact):
            return results
        outcomes = [*results]
        for position, outcome in zip(retried, exact, strict=True):
            outcomes[position] = outcome
        return outcomes

    async def read_by_script(
        self,
        names: Sequence[str],
        until: float,
        decode: Callable[[list[bytes | None], list[bytes | None], list[int], frozenset[int]], Sequence[Result]],
        side_names: Sequence[str] = (),
        budget: ReadBudget | None = None,
    ) -> Sequence[Result | TableError]:
        """Read by the script, with side keys if they are named. Records beyond the `budget` end as NOT_READ.

        `decode` returns the results of one call from the records, the side keys (none if not read), the expiries (none
        if no record expires), and the positions of records that are not strings.
        """
        parts: list[Sequence[Result | TableError]] = []
        groups = self._servers.groups(names)
        commands = [
            Command((), slot, READ, words_at([names, side_names] if side_names else [names], positions, len(names)))
            for positions, slot in groups
        ]
        for (positions, _), reply in zip(groups, await self._servers.run(commands, until, budget=budget), strict=True):
            count = len(positions)
            keys_count = 2 * count if side_names else count
            match reply:
                case [[*raws], [*expiries], [*types]] if len(raws) == keys_count and len(expiries) in (0, keys_count):
                    wrong_types = frozenset(position - 1 for position in types)
                    parts.append(decode(raws[:count], raws[count:], expiries, wrong_types))
                case _:
                    parts.append([from_unexpected_reply(reply)] * count)
        return in_order(groups, parts)


def _outcomes(
    raws: list[bytes | None], sides: object, expiries: list[int], wrong_types: frozenset[int]
) -> Sequence[Outcome]:
    return read_all(raws, expiries, {at: wrong_type() for at in wrong_types})
