"""Lua scripts and commands in the form that is sent, and the script that reads several records."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from hiredis import pack_command
from redis.connection import PythonRespSerializer

LONG_WORD_BYTES = 65_536
"""Longer words are sent without being copied: a copy of 16 MiB takes up to 0.1 s."""

LONG_COMMAND_WORDS = 100
"""Commands of so many words are packed in fewer steps if possible: the driver takes 0.1 us for each word."""


class Script:
    """A script and its SHA-1 digest, that EVALSHA uses once the server has loaded it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command(msgspec.Struct, frozen=True):
    """One command, or one call of a script, on keys of one slot.

    `positions` are the positions of its records in the caller's batch.
    """

    words: tuple[Any, ...]
    positions: Sequence[int] = ()
    slot: int = 0
    script: Script | None = None

    def packed(self, *, script_text: bool = False) -> list[bytes]:
        """Return the bytes to send, in parts: each word above `LONG_WORD_BYTES` is one.

        `script_text` sends the script itself, for a server that has not loaded it.
        """
        head: tuple[str, ...] = ()
        if self.script is not None:
            head = ("EVAL", self.script.text) if script_text else ("EVALSHA", self.script.sha)
        words = head + self.words
        if len(words) >= LONG_COMMAND_WORDS and (packed := _packed_names(words)):
            return [packed]
        if True in [type(word) is bytes and len(word) > LONG_WORD_BYTES for word in words]:
            parts: list[bytes] = PythonRespSerializer(LONG_WORD_BYTES, _encode).pack(*words)  # type: ignore[no-untyped-call]
            return parts
        return [pack_command(words)]


def _packed_names(words: Sequence[Any]) -> bytes | None:
    """Return the bytes of a command on names of one length, such as MGET. Return None for any other command."""
    command, *names = words
    if set(map(type, words)) != {str} or len(set(map(len, names))) > 1:
        return None
    before = f"\r\n${len(names[0])}\r\n"
    text = f"*{len(words)}\r\n${len(command)}\r\n{command}{before}{before.join(names)}\r\n"
    return text.encode() if text.isascii() else None


def _encode(word: str | bytes | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def script_call(
    script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int], positions: Sequence[int], slot: int
) -> Command:
    """Return the command that calls a script."""
    return Command((len(keys), *keys, *arguments), positions, slot, script)


READ_SCRIPT = Script("""
-- Returns three lists: the values (nil: absent), their expiries in Unix ms (empty if none expires), and the positions
-- of keys that are not strings.
local values, expiries, wrong_types, expiring = {}, {}, {}, false
for index, key in ipairs(KEYS) do
  local value, expires = redis.pcall('GET', key), 0
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then return value end
    wrong_types[#wrong_types + 1] = index
    value = false
  elseif value then
    expires = redis.call('PEXPIRETIME', key)
    if expires > 0 then expiring = true else expires = 0 end
  end
  values[index], expiries[index] = value, expires
end
return {values, expiring and expiries or {}, wrong_types}
""")
