"""Names and records of Redis in columns are the same as those in lists."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from contract import INTEGERS, STRINGS, described
from tableside.core import COLUMN_BYTES_MAX, NOT_READ
from tableside.core.keys import KeySchema
from tableside.stores.redis.connection import EXPIRY_UNKNOWN
from tableside.stores.redis.keys import KeyNames
from tableside.stores.redis.name_column import NameColumn
from tableside.stores.redis.reads import _columns
from tableside.stores.redis.records import pack, read_all, read_columns
from tableside.stores.redis.scripts import LONG_COMMAND_NAMES, READ_SCRIPT, Command, script_call

# Records

values = st.sampled_from(
    [b"{}", b'{"n":1}', '{"s":"ü"}'.encode(), b'{"s":"}\r\t\r\t"}', b'{"a":"' + b"x" * 300 + b'"}']
)
randoms = st.lists(st.sampled_from(b" \t\n\r"), min_size=12, max_size=12).map(bytes)
ours = st.builds(lambda value, end: value + b"\r\t\r\t" + end, values, randoms)
cut = st.builds(
    lambda raw, length, end: raw[-length:] if end else raw[:length], ours, st.integers(1, 24), st.booleans()
)
END = b"}\r\t\r\t" + b" " * 12
foreign = st.sampled_from(
    [
        b"", b"{", b"{}", b'{ "n": 1}', b'{"n":1}\n', b' {"n":1}', b'{"n":1}\r\t\r\t' + b" " * 11, b"[1]" + b" " * 16,
        b"{}\r\t\r\t", b"junk", END, b" " + END, b"[" + END, b"{" + END, b'{"n":1 ' + END, b"\xff" * 20,
    ]
)  # fmt: skip


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(st.lists(ours | st.none(), max_size=20), st.lists(ours | cut | foreign, max_size=2), st.integers(0, 99))
@example([pack(b"{}")], [b"{}\r\t\r\t", END], 0)
@example([pack(b"{}"), None], [b"{", b"}\r\t\r\t" + b" " * 11], 0)
@example([], [END], 0)
@example([], [b"[" + END], 0)
def test_records_in_columns_equal_records_in_a_list(usual: list[bytes | None], others: list[bytes], seed: int) -> None:
    raws = [*others, *usual]
    random.Random(seed).shuffle(raws)
    columns, expected = read_columns(raws), described(read_all(raws))
    if columns is None:
        assert any(raw is not None and (raw[-17:-12] != END[:5] or raw[:1] != b"{") for raw in raws)
    else:
        assert described(columns) == expected
        assert columns.absent_count == raws.count(None)
        for column in (columns.values, columns.etags):
            column.validate(full=True)


@pytest.mark.parametrize(
    "replies", [[5], ["text", 1], [[b"{}"]], [ResponseError("WRONGTYPE")], [b"{}"], [b""]], ids=str
)
def test_other_replies_are_not_in_columns(replies: list[Any]) -> None:
    command = Command(("MGET",), range(len(replies) + 1), names=["a"] * (len(replies) + 1))
    assert _columns([command], [[pack(b"{}"), *replies]], 100) is None


@pytest.mark.parametrize(
    "reply",
    [EXPIRY_UNKNOWN, NOT_READ, None, b"{}", [], [None], [None] * 3],
    ids=["expiry unknown", "not read", "nil", "text", "none", "one", "three"],
)
def test_one_command_without_a_list_of_its_values_suffices(reply: Any) -> None:
    commands = [Command(("MGET",), range(start, start + 2), names=["a", "b"]) for start in (0, 2)]
    plain: Any = [pack(b'{"n":1}'), None]
    found = _columns(commands, [plain, plain[::-1]], 100)
    assert found is not None
    assert described(found) == described(read_all([*plain, *plain[::-1]]))
    assert _columns(commands, [plain, reply], 100) is None
    assert _columns(commands, [reply, plain], 100) is None


def test_columns_have_a_limited_size() -> None:
    command = Command(("MGET",), range(1), names=["a"])
    assert _columns([command], [[pack(b"{}")]], COLUMN_BYTES_MAX) is not None
    assert _columns([command], [[pack(b"{}")]], COLUMN_BYTES_MAX + 1) is None


# Names

PREFIXES = ["t:", "", "ü:", "app/[users]*/", "🛫" * 30, "x" * 300]
KEYS: dict[str, Sequence[Any]] = {
    "one length": [f"{number:04}" for number in range(500)],
    "several lengths": [f"{number}" for number in range(500)],
    "not ASCII, one length": ["ü" + f"{number:04}" for number in range(500)],
    "not ASCII, several in UTF-8": [("ü" if number % 2 else "e") + f"{number:04}" for number in range(500)],
    "one length in UTF-8": ["ü" if number % 2 else "ee" for number in range(100)],
    "longest": ["x" * 1024, "a", "ü" * 512, "🛫" * 256] * 10,
    "powers of two": ["x" * length for length in (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 1023, 1024)] * 2,
    "lines": ["\r\n$4\r\n", "$1", "\r\n"] * 20,
    "few": [f"{number}" for number in range(5)],
    "integers": [0, -1, 7, 10, 2**63 - 1, -(2**63), *range(-50, 50)],
    "integers of one length": [*range(100, 200)],
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
def test_names_in_a_column_are_those_in_a_list(prefix: str, keys: Sequence[Any]) -> None:
    column, names = column_and_names(prefix, keys)
    count = len(keys)
    assert isinstance(column, NameColumn)
    assert len(column) == count
    assert list(column) == names
    assert [column[index] for index in range(-count, count)] == names * 2
    for part in (slice(3), slice(2, -1), slice(None, None, 3), slice(count, None), slice(None, None, -1)):
        assert isinstance(column[part], NameColumn)
        assert list(column[part]) == names[part]
    with pytest.raises(IndexError):
        column[count]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
def test_names_in_a_column_are_packed_like_those_in_a_list(prefix: str, keys: Sequence[Any]) -> None:
    column, names = column_and_names(prefix, keys)
    for part in (slice(None), slice(1, None), slice(4, 40), slice(30, 31), slice(None, None, -1), slice(3, 90, 2)):
        few = len(names[part]) < LONG_COMMAND_NAMES
        assert packed(column[part]) == packed(names[part])
        assert few or column[part].packed() in packed(names[part])
    in_script, listed = (b"".join(script_call(READ_SCRIPT, some, [b"", 5], (), 0).packed()) for some in (column, names))
    assert in_script == listed


def column_and_names(prefix: str, keys: Sequence[Any]) -> tuple[NameColumn, list[str]]:
    schema: KeySchema = INTEGERS if isinstance(keys[0], int) else STRINGS
    names = KeyNames(prefix, schema)
    # Others come before and after the keys in the buffers of the column.
    column = pa.array([*keys[:2], *keys, keys[0]])[2:-1]
    return names.for_column(column), names.for_keys(keys)


def packed(names: Sequence[str]) -> bytes:
    return b"".join(Command(("MGET",), names=names).packed())


texts = st.text(st.sampled_from("\r\n$0aü\u2028🛫\x01"), min_size=1, max_size=20)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(texts, min_size=LONG_COMMAND_NAMES, max_size=40), st.text(st.sampled_from("a:ü🛫"), max_size=5))
def test_random_names_in_a_column_are_packed_like_those_in_a_list(keys: list[str], prefix: str) -> None:
    column, names = column_and_names(prefix, keys)
    assert packed(column) == packed(names)
