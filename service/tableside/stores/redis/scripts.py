"""Lua scripts and commands in the form that is sent, and the script that reads several records."""

import hashlib
from collections.abc import Sequence
from typing import Any, AnyStr

import msgspec
from hiredis import pack_command
from redis.connection import PythonRespSerializer

LONG_WORD_BYTES = 65_536
"""Longer words are sent without being copied: a copy of 16 MiB takes up to 0.1 s."""

LONG_COMMAND_NAMES = 16
"""Commands with so many names are packed in fewer steps: the driver takes 0.1 us for each word."""


class Script:
    """A script and its SHA-1 digest, that EVALSHA uses once the server has loaded it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class PackedWords(msgspec.Struct, frozen=True):
    """The names and arguments of a command as they are sent, each after its length: their numbers, and their texts."""

    names: int
    arguments: int
    texts: tuple[bytes, ...]


class Command(msgspec.Struct, frozen=True):
    """One command, or one call of a script, on keys of one slot.

    `positions` are the positions of its records in the caller's batch. `names` and `arguments`, or both in the form
    that is sent, follow the `words`.
    """

    words: tuple[Any, ...]
    positions: Sequence[int] = ()
    slot: int = 0
    script: Script | None = None
    names: Sequence[str] = ()
    arguments: Sequence[str | bytes | int] = ()
    packed_words: PackedWords | None = None

    def packed(self, *, script_text: bool = False) -> list[bytes]:
        """Return the bytes to send, in parts: each word above `LONG_WORD_BYTES` is one.

        `script_text` sends the script itself, for a server that has not loaded it.
        """
        words, more = self.words, self.packed_words or self._packed_words()
        if self.script is not None:
            head = ("EVAL", self.script.text) if script_text else ("EVALSHA", self.script.sha)
            words = (*head, len(self.names) if more is None else more.names)
        if more is not None:
            _, _, start = pack_command(words).partition(b"\r\n")
            return [b"*%d\r\n%b" % (len(words) + more.names + more.arguments, start), *more.texts]
        words += (*self.names, *self.arguments)
        if True in [type(word) is bytes and len(word) > LONG_WORD_BYTES for word in words]:
            parts: list[bytes] = PythonRespSerializer(LONG_WORD_BYTES, _encode).pack(*words)  # type: ignore[no-untyped-call]
            return parts
        return [pack_command(words)]

    def _packed_words(self) -> PackedWords | None:
        """Return the names and arguments packed, or None if names are few or not ASCII, or an argument is long."""
        if len(self.names) < LONG_COMMAND_NAMES:
            return None
        names = _packed_texts(self.names, "$%d\r\n", "\r\n")
        arguments = [word if type(word) is bytes else _encode(word) for word in self.arguments]
        if not names.isascii() or max(map(len, arguments), default=0) > LONG_WORD_BYTES:
            return None
        texts = names.encode(), _packed_texts(arguments, b"$%d\r\n", b"\r\n")
        return PackedWords(len(self.names), len(arguments), texts)


def _packed_texts(texts: Sequence[AnyStr], length_form: AnyStr, end: AnyStr) -> AnyStr:
    """Return texts as they are sent, each after its length. The length is wrong for a string that is not ASCII."""
    lengths = list(map(len, texts))
    before = {length: length_form % length for length in set(lengths)}
    if len(before) == 1:
        [start] = before.values()
        return start + (end + start).join(texts) + end
    parts = [end] * (3 * len(texts))
    parts[::3], parts[1::3] = [before[length] for length in lengths], texts
    return end[:0].join(parts)


def _encode(word: str | bytes | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def script_call(
    script: Script, names: Sequence[str], arguments: Sequence[str | bytes | int], positions: Sequence[int], slot: int
) -> Command:
    """Return the command that calls a script on the keys with these names."""
    return Command((), positions, slot, script, names, arguments)


FAILURE = """
-- Returns the reply for an error. Redis 7.0 does not name the command that the user may not run.
local function failure(error)
  local text = type(error) == 'table' and error.err or error
  if string.find(text, "can't run this command", 1, true) then
    local denied = {}
    for command in string.gmatch(
      'GET SET EXISTS UNLINK GETRANGE SETRANGE PEXPIREAT PEXPIRETIME PERSIST ZCARD ZSCORE', '%u+') do
      if not redis.acl_check_cmd(command, KEYS[1]) then table.insert(denied, command) end
    end
    text = "ERR ACL failure in script: no permissions to run the '" .. table.concat(denied, ', ') .. "' command"
  end
  return redis.error_reply(text)
end
"""

READ_SCRIPT = Script(
    FAILURE
    + """
-- Returns three lists: the values (nil: absent), their expiries in Unix ms (empty if none expires), and the positions
-- of keys that are not strings.
local values, expiries, wrong_types, expiring = {}, {}, {}, false
for index, key in ipairs(KEYS) do
  local value, expires = redis.pcall('GET', key), 0
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then return failure(value) end
    wrong_types[#wrong_types + 1] = index
    value = false
  elseif value then
    expires = redis.call('PEXPIRETIME', key)
    if expires > 0 then expiring = true else expires = 0 end
  end
  values[index], expiries[index] = value, expires
end
return {values, expiring and expiries or {}, wrong_types}
"""
)
