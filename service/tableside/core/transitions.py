"""The effect of one write on one record: the rules for tokens, preconditions, orders, expiry and updates.

Functions are pure. Every store that reads a record, decides and writes it back uses `transition` to decide, so a write
has the same effect in every store.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from . import updates, values
from .batch import Batch
from .errors import InvalidOperation, PreconditionFailed, RecordNotFound, RecordUnreadable, TableError
from .operations import ANY_ETAG, NO_EXPIRY, Delete, Outcome, Put, Record, Token, Update, Write, Written
from .orders import ALL, EXISTS, EXPIRY, Orders, assigned, assignments
from .store import TableSpec
from .values import check_elements

WRITERS_MAX = 8
"""Maximum number of writers whose last sequence a record contains."""

TOMBSTONE_TTL_S = 24 * 3600.0
"""How long the tombstone of a delete with a token is kept."""

EXPIRY_MS_MAX = 253_402_300_799_000
"""The last time that RFC 3339 can express, 9999-12-31T23:59:59Z. A record with a later expiry does not expire."""


class Memory(msgspec.Struct, frozen=True, gc=False):
    """What a record remembers of its writes, so that a repeated one or an older one changes nothing.

    It remembers that also after its deletion. False if that is nothing.

    `writers` are the last sequence of each writer, the latest last. `orders` is the text of `Orders`, empty without
    ordered writes.
    """

    writers: tuple[tuple[str, int], ...] = ()
    orders: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.writers or self.orders)

    @classmethod
    def of_put(cls, token: Token | None, order: int | None) -> "Memory":
        """Return the memory of a record that remembers only this put."""
        writers = () if token is None else ((token.writer, token.sequence),)
        return cls(writers, b"" if order is None else b'{"":%d}' % order)

    def replaces(self, present: "Memory") -> bool:
        """Return whether a put follows the only remembered write, which is an earlier one of the same writer."""
        writers, before = self.writers, present.writers
        if self.orders or present.orders or len(writers) != 1 or len(before) != 1:
            return False
        return writers[0][0] == before[0][0] and writers[0][1] > before[0][1]


NO_MEMORY = Memory()


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A record as a store keeps it: a value, or a tombstone (value None) that contains only the memory.

    `expires_ms` is in Unix milliseconds, 0 for never. A record with orders is kept for the table's `delete_memory_s`
    after it has expired.
    """

    value: bytes | None
    etag: str
    expires_ms: int = 0
    memory: Memory = NO_MEMORY

    def live(self, now_ms: int) -> bool:
        """Return whether the record has not expired."""
        return not self.expires_ms or self.expires_ms > now_ms

    def remembered(self, now_ms: int, delete_memory_s: float) -> "Stored | None":
        """Return what counts at a time: the record, the tombstone of an expired one with orders, or None."""
        if self.live(now_ms):
            return self
        if self.memory.orders and self.value is not None and now_ms < self.expires_ms + 1000 * delete_memory_s:
            return Stored(None, self.etag, 0, self.memory)
        return None


_NOTHING = Stored(None, "")


class Unchanged(msgspec.Struct, frozen=True):
    """The write does not change the record."""

    outcome: Outcome


class Changed(msgspec.Struct, frozen=True):
    """The write replaces the record by `stored` (None removes it)."""

    stored: Stored | None
    outcome: Outcome


Transition = Unchanged | Changed


def live_record(stored: Stored | None, now_ms: int) -> Record | None:
    """Return the outcome of a Get."""
    if stored is None or stored.value is None or not stored.live(now_ms):
        return None
    return Record(stored.value, stored.etag, stored.expires_ms)


def transition(
    stored: Stored | RecordUnreadable | None, write: Write, spec: TableSpec, *, now_ms: int, etag: str
) -> Transition:
    """Return the effect of a write on the stored record. `etag` belongs to the new version.

    An unconditional put or delete can replace or remove a record that is unreadable.
    """
    if isinstance(stored, RecordUnreadable):
        if isinstance(write, Update) or not is_unconditional(write):
            return Unchanged(stored)
        # The record exists, and its content does not matter.
        stored = Stored(b"", "", 0, stored.memory or NO_MEMORY)
    known = _NOTHING if stored is None else stored.remembered(now_ms, spec.delete_memory_s) or _NOTHING
    try:
        if write.token is not None and _is_replay(known, write.token):
            return Unchanged(_current(known, write, replayed=True))
        if write.order is not None:
            return _ordered(known, write, write.order, spec, now_ms, etag)
        _check_preconditions(known, write)
        if isinstance(write, Put):
            expires_ms = expiry_ms(spec.ttl_s if write.ttl_s is None else write.ttl_s, now_ms)
            return _written(known, write, write.value, spec, expires_ms, etag, created=write.if_absent)
        if isinstance(write, Update):
            return _update(known, write, spec, now_ms, etag)
        return _delete(known, write, spec, now_ms, etag)
    except TableError as error:
        return Unchanged(error.with_traceback(None))  # a traceback would keep the values of its frames alive


def is_unconditional(write: Write) -> bool:
    """Return whether a write has no precondition."""
    return write.if_match is None and not (isinstance(write, Put) and write.if_absent)


def expiry_ms(ttl_s: float | None, now_ms: int) -> int:
    """Return the expiry for a time to live in Unix milliseconds, 0 for never."""
    if ttl_s is None or ttl_s == NO_EXPIRY:
        return 0
    expires_ms = now_ms + max(1, round(ttl_s * 1000)) if ttl_s * 1000 < EXPIRY_MS_MAX else EXPIRY_MS_MAX
    return expires_ms if expires_ms < EXPIRY_MS_MAX else 0


def expiries_ms(ttls_s: Sequence[float | None], default_s: float | None, now_ms: int) -> list[int]:
    """Return `expiry_ms` for each time to live in seconds. None stands for the default."""
    expiries = {ttl_s: expiry_ms(default_s if ttl_s is None else ttl_s, now_ms) for ttl_s in set(ttls_s)}
    return [expiries[ttl_s] for ttl_s in ttls_s]


def put_columns(puts: Batch, etags: Sequence[str], expiries_ms: Sequence[int]) -> dict[str, Sequence[Any]]:
    """Return the columns of the outcomes of puts that were written: the first ones, if there are fewer etags."""
    columns: dict[str, Sequence[Any]] = {"etag": etags}
    if any(expiries_ms):
        columns["expires_ms"] = expiries_ms
    if puts.has("returning"):
        both = zip(puts.cells("value"), puts.cells("returning"), strict=True)
        columns["value"] = [value if returning else None for value, returning in both][: len(etags)]
    return columns


def with_etag(changed: Changed, etag: str) -> Changed:
    """Return the same change with another etag, for stores that derive the etag from the value."""
    assert isinstance(changed.outcome, Written)
    if changed.stored is None or changed.stored.value is None:
        return changed
    return Changed(replace(changed.stored, etag=etag), replace(changed.outcome, etag=etag))


def _is_replay(stored: Stored, token: Token) -> bool:
    return any(writer == token.writer and sequence >= token.sequence for writer, sequence in stored.memory.writers)


def _current(stored: Stored, write: Write, *, replayed: bool = False, superseded: bool = False) -> Written:
    """Return the outcome of a write that changes nothing."""
    if not stored.value:  # None is a tombstone, and no text an unreadable value.
        return Written(None, replayed=replayed, superseded=superseded)
    return Written(stored.etag, False, replayed, _returned(stored.value, write), stored.expires_ms, superseded)


def _returned(value: bytes, write: Write) -> bytes | None:
    return value if not isinstance(write, Delete) and write.returning else None


def _check_preconditions(stored: Stored, write: Write) -> None:
    if write.if_match is not None:
        if stored.value is None:
            raise PreconditionFailed("if_match: there is no such record")
        if ANY_ETAG not in write.if_match and stored.etag not in write.if_match:
            raise PreconditionFailed(f"if_match: {_mismatch(write.if_match, stored.etag)}")
    if isinstance(write, Put) and write.if_absent and stored.value is not None:
        raise PreconditionFailed("if_absent: the record exists")


def _mismatch(given: Sequence[str], etag: str) -> str:
    """Return the reason why no etag matches. HTTP servers add the weak prefix or a suffix to compressed responses."""
    if any(one.startswith(('W/"', f"{etag}-", f"{etag};")) for one in given):
        return (
            "a weak etag (W/) or one with a suffix such as -gzip matches no version. A proxy has compressed the record "
            "and changed its etag: turn off compression there, or read the record with Accept-Encoding: identity"
        )
    if any(one.startswith('"') for one in given):
        return "the quotes around an etag in HTTP are not part of it"
    return "the record has another version"


def _update(stored: Stored, update: Update, spec: TableSpec, now_ms: int, etag: str) -> Changed:
    is_absent = stored.value is None
    start = update.default if stored.value is None else stored.value
    if start is None:
        raise RecordNotFound("there is no such record, and the update has no default")
    finish = partial(spec.key.without_key, key=update.key) if spec.key.has_names else None
    value = updates.apply(start, update.changes, finish, is_default=is_absent)
    sets_expiry = is_absent or update.ttl_s is not None
    expires_ms = expiry_ms(_ttl_s(update, spec), now_ms) if sets_expiry else stored.expires_ms
    return _written(stored, update, value, spec, expires_ms, etag, created=is_absent)


def _delete(stored: Stored, delete: Delete, spec: TableSpec, now_ms: int, etag: str) -> Transition:
    if delete.forget:
        return Unchanged(Written(None)) if stored is _NOTHING else Changed(None, Written(None))
    if delete.token is not None:
        return _deleted(stored, delete, spec, now_ms, etag)
    if stored.value is None:
        return Unchanged(Written(None))
    return _deleted(stored, delete, spec, now_ms, etag) if stored.memory.orders else Changed(None, Written(None))


def _deleted(stored: Stored, delete: Delete, spec: TableSpec, now_ms: int, etag: str) -> Changed:
    """Replace a record by a tombstone. Only a delete with a token, or of a tombstone, prolongs the memory of tokens."""
    memory = stored.memory if delete.token is None else _with_token(stored.memory, delete.token)
    keeps_tokens = delete.token is not None or (stored.value is None and memory.writers)
    memory_s = max(TOMBSTONE_TTL_S if keeps_tokens else 0.0, spec.delete_memory_s if memory.orders else 0.0)
    return Changed(Stored(None, etag, expiry_ms(memory_s, now_ms), memory), Written(None))


# Ordered writes


def _ordered(stored: Stored, write: Write, order: int, spec: TableSpec, now_ms: int, etag: str) -> Transition:
    """Return the effect of a write on the members that have no higher order."""
    if not is_unconditional(write) or (isinstance(write, Update) and write.default is not None):
        raise InvalidOperation("order cannot be combined with if_match, if_absent or default")
    orders = Orders(stored.memory.orders)
    if isinstance(write, Update):
        return _ordered_update(stored, write, orders, order, spec, now_ms, etag)
    if not orders.may_write(ALL, order) or _stays_absent(stored, orders, order):
        return Unchanged(_current(stored, write, superseded=True))
    expires_ms = expiry_ms(_ttl_s(write, spec), now_ms) if orders.may_write(EXPIRY, order) else stored.expires_ms
    newer = orders.write_all(order)
    result = _with_orders(stored, orders)
    if isinstance(write, Delete) and not newer:
        return _deleted(result, write, spec, now_ms, etag)
    value = write.value if isinstance(write, Put) else b"{}"
    if newer:  # They stay as they are.
        kept = {name: member for name, member in values.decode(value).items() if name not in newer}
        value = _encoded(kept | {name: member for name, member in _members(stored).items() if name in newer})
    return _written(result, write, value, spec, expires_ms, etag, created=False)


def _ordered_update(
    stored: Stored, update: Update, orders: Orders, order: int, spec: TableSpec, now_ms: int, etag: str
) -> Transition:
    members, is_absent = assignments(update.changes), stored.value is None
    if spec.key.has_names:  # A member that repeats the key is not stored.
        spec.key.without_key(assigned({}, members), update.key)
        members = {name: member for name, member in members.items() if name not in spec.key.names}
    written = {name: member for name, member in members.items() if orders.may_write(name, order)}
    sets_expiry = update.ttl_s is not None and orders.may_write(EXPIRY, order)
    renews = not members and order >= orders.newest
    if not (written or renews or sets_expiry) or _stays_absent(stored, orders, order):
        return Unchanged(_current(stored, update, superseded=bool(members)))
    superseded = not written and not renews and bool(members)
    for name in (*written, *([EXISTS] if renews else []), *([EXPIRY] if sets_expiry else [])):
        orders.write(name, order)
    expires_ms = expiry_ms(_ttl_s(update, spec), now_ms) if sets_expiry or is_absent else stored.expires_ms
    value = assigned(_members(stored), written)
    result, text = _with_orders(stored, orders), _encoded(value)
    return _written(result, update, text, spec, expires_ms, etag, created=is_absent, superseded=superseded)


def _with_orders(stored: Stored, orders: Orders) -> Stored:
    return replace(stored, memory=replace(stored.memory, orders=orders.text))


def _stays_absent(stored: Stored, orders: Orders, order: int) -> bool:
    """Return whether a record that was deleted without an order, or has expired, is newer than a write."""
    return stored.value is None and order < orders.newest


def _ttl_s(write: Write, spec: TableSpec) -> float | None:
    return spec.ttl_s if isinstance(write, Delete) or write.ttl_s is None else write.ttl_s


def _members(stored: Stored) -> values.JsonObject:
    """Return the value as an object, empty if there is none or it is unreadable."""
    check_elements(stored.value or b"")
    return values.decode(stored.value) if stored.value else {}


def _encoded(value: values.JsonObject) -> bytes:
    text = values.encode_canonical(value)
    check_elements(text)
    return text


def _written(
    stored: Stored,
    write: Write,
    value: bytes,
    spec: TableSpec,
    expires_ms: int,
    etag: str,
    *,
    created: bool,
    superseded: bool = False,
) -> Changed:
    """Replace a record. A superseded update, which sets only the expiry, uses up no token."""
    spec.check_value(value)
    memory = stored.memory if write.token is None or superseded else _with_token(stored.memory, write.token)
    outcome = Written(etag, created, False, _returned(value, write), expires_ms, superseded)
    return Changed(Stored(value, etag, expires_ms, memory), outcome)


def _with_token(memory: Memory, token: Token) -> Memory:
    others = tuple(entry for entry in memory.writers if entry[0] != token.writer)
    return replace(memory, writers=(*others[-(WRITERS_MAX - 1) :], (token.writer, token.sequence)))


def checked_ttl_s(raw: object) -> float | None:
    """Validate a time to live in seconds. Raise InvalidOperation unless it is None, -1 or above 0."""
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not (raw == NO_EXPIRY or raw > 0):
        raise InvalidOperation("ttl_s must be a number above 0, or -1 for no expiry")
    return float(min(raw, EXPIRY_MS_MAX))
