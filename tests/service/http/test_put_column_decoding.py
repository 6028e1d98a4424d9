"""A large Arrow batch of plain puts is decoded into a column, with the same operations as without columns."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract import COMPOSITE, INTEGERS
from support.pieces import counted, finish
from tableside.core import COLUMN_BYTES_MAX, DeadlineExceeded, KeyField, KeySchema, Put, PutColumn, TableSpec, columns
from tableside.core.columns import KEYS_MIN
from tableside.http.wire import arrow_batch
from tableside.http.wire.answers import PIECE_OPERATIONS, never
from tableside.http.wire.arrow_batch import RowSettings
from tableside.http.wire.json_batch import Batch

TEXTS = TableSpec("t")
NUMBERS = TableSpec("t", KeySchema((KeyField(None, "integer"),)))
PARTITIONED = TableSpec("t", partitions=2)

PUT = RowSettings("put")
LONGEST = 2**12
"""The maximum length of a value in a column."""


def nested(depth: int) -> str:
    """Return a value with so many objects and arrays in each other."""
    return '{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


UUID = str(uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF))
VALID = [
    *("{}", '{"n":1}', '{"n":-7,"s":"ü"}', ' { "n" : 1 } ', '{"n":12.0}', '{"n":1e2}', '{"n":-0.0}', '{"n":1E15}'),
    *('{"a":1,"a":2}', '{"b":1,"a":2}', '{"s":"\\u00fc"}', '{"s":"\\n"}', '{"s":"}"}', '{"_t":1,"x_ts":2}'),
    *(f'{{"id":"{UUID}"}}', f'{{"id":"{UUID}","n":12.0}}', '{"a":{"_ts":1}}', '{"s":"_ts"}', '{"n":0.1}'),
    *(f'{{"n":{2**63 - 1}}}', f'{{"n":{-(2**63)}}}', '{"n":1e300}', '{"n":9223372036854774784.0}', nested(30)),
    *('{"a":null}', '{"a":[{"b":[]}]}', '{"s":"🛫"}', '{"s":"' + "x" * 300 + '"}', '{"s":"{},{}"}', "{}\n"),
]
INVALID = [
    *("", " ", "null", "[1]", "7", '"text"', "{", "}", "{},{}", "{}{}", "{}\n{}", '{"a":}', '{"a":1,}', '{"a":NaN}'),
    *('{"":1}', '{"_ts":1}', '{"_tsx":1}', '{"a":{"":1}}', '{"s":"\\u0000"}', '{"\\u0000":1}', '{"s":"\\ud800"}'),
    *(f'{{"n":{2**63}}}', f'{{"n":{-(2**63) - 1}}}', f'{{"n":{10**30}}}', '{"n":1e400}', nested(31), nested(40)),
    *('{"a":' * 2000, "\ufeff{}", "nonsense"),
]
NOT_UTF8 = [b'{"s":"\xff"}', b"\xff", b'{"s":"\xed\xa0\x80"}', b'{"s":"\xc3"}']
PLAIN_KINDS = [pa.utf8(), pa.large_utf8(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()]
VALUE_KINDS = [*PLAIN_KINDS, pa.dictionary(pa.int32(), pa.utf8()), pa.dictionary(pa.int32(), pa.binary())]
KEY_KINDS = [pa.utf8(), pa.large_utf8()]
NUMBER_KINDS = [pa.int64(), pa.uint64(), pa.int32(), pa.uint16()]
OTHER_KINDS = [pa.string_view(), pa.dictionary(pa.int32(), pa.utf8()), pa.dictionary(pa.int32(), pa.large_utf8())]

RANDOM = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def column_of(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return cells, which are strings or bytes, as a column of a type for text."""
    if pa.types.is_dictionary(kind):
        return column_of(cells, kind.value_type).dictionary_encode().cast(kind)
    is_text = kind in (pa.utf8(), pa.large_utf8(), pa.string_view())
    given_ = [cell.encode() if isinstance(cell, str) and not is_text else cell for cell in cells]
    return pa.array(given_, kind)


def keys_of(count: int) -> list[str]:
    return [f"k{index}" for index in range(count)]


def decoded(rows: pa.Table, spec: TableSpec, row_settings: RowSettings, expired: Callable[[], bool] = never) -> Batch:
    return finish(arrow_batch.decode(rows, spec, row_settings, expired))


def described(batch: Batch) -> list[str]:
    """Return the operations as text, because errors have no equality."""
    return [f"{type(operation).__name__} {operation}" for operation in batch.operations]


def check(rows: pa.Table, spec: TableSpec, row_settings: RowSettings, *, may_be_column: bool = True) -> Batch:
    """Decode a batch with and without columns. It must be in a column if all its operations are short puts."""
    found = decoded(rows, spec, row_settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "KEYS_MIN", 2**60)
        expected = decoded(rows, spec, row_settings)
    assert type(expected.operations) is list
    assert described(found) == described(expected)
    assert found.fields == expected.fields
    valid = {type(operation) for operation in expected.operations} == {Put}
    assert isinstance(found.operations, PutColumn) == (valid and may_be_column)
    if isinstance(found.operations, PutColumn):
        assert found.operations.values.type == pa.binary()
        for column in (found.operations.keys, found.operations.values):
            column.validate(full=True)
            assert column.null_count == 0
    return found


def divided(rows: pa.Table, place: int) -> pa.Table:
    """Return the same rows in two chunks, at an offset in their buffers."""
    shifted = pa.concat_tables([rows.slice(0, 1), rows]).combine_chunks().slice(1)
    return pa.concat_tables([shifted.slice(0, place), shifted.slice(place)])


def mixed(usual: Sequence[Any], special: Sequence[Any], places: Iterator[int]) -> list[Any]:
    cells = [usual[index % len(usual)] for index in range(KEYS_MIN + 12)]
    for cell in special:
        cells[next(places) % len(cells)] = cell
    return cells


places = st.lists(st.integers(0, KEYS_MIN + 11), min_size=4, max_size=4)
rare_values: st.SearchStrategy[list[str | None]] = st.lists(st.sampled_from([*INVALID, None]), max_size=2) | st.just([])
text_keys: st.SearchStrategy[list[Any]] = st.just([]) | st.lists(
    st.sampled_from(["k0", "ü", "", "a\0", "x" * 1024, "x" * 1025, "ü" * 513, None]), max_size=2
)


@pytest.mark.parametrize("kind", VALUE_KINDS, ids=str)
@RANDOM
@given(
    usual=st.lists(st.sampled_from(VALID), min_size=1, max_size=12),
    special=rare_values,
    special_keys=text_keys,
    at=places,
    key_kind=st.sampled_from(KEY_KINDS),
    with_column=st.booleans(),
    cut=st.integers(1, KEYS_MIN),
)
def test_random_puts_equal_those_decoded_without_columns(
    kind: pa.DataType,
    usual: list[str],
    special: list[str | None],
    special_keys: list[str | None],
    at: list[int],
    key_kind: pa.DataType,
    with_column: bool,
    cut: int,
) -> None:
    next_place = iter(at)
    values = mixed(usual, special, next_place)
    keys: list[str | None] = [*keys_of(len(values))]
    for key in special_keys:
        keys[next(next_place)] = key
    rows = pa.table({"key": pa.array(keys, key_kind), "value": column_of(values, kind)})
    if with_column:
        rows = rows.append_column("op", pa.array(["put"] * len(keys)))
    for each in (rows, divided(rows, cut)):
        check(each, TEXTS, RowSettings() if with_column else PUT)


@pytest.mark.parametrize("kind", NUMBER_KINDS, ids=str)
@RANDOM
@given(
    numbers=st.lists(
        st.sampled_from([0, -1, 7, 2**15, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), None]) | st.integers(), max_size=3
    ),
    special=rare_values,
    at=places,
)
@example(numbers=[2**63], special=[], at=[5, 0, 0, 0])
def test_random_puts_of_integers(
    kind: pa.DataType, numbers: list[int | None], special: list[str | None], at: list[int]
) -> None:
    low, high = (0, 2**kind.bit_width) if "u" in str(kind) else (-(2 ** (kind.bit_width - 1)), 2**kind.bit_width // 2)
    numbers = [number for number in numbers if number is None or low <= number < high]
    values = mixed(VALID, special, iter(at[::-1]))
    keys: list[int | None] = [*range(len(values))]
    for place, number in zip(at, numbers, strict=False):
        keys[place] = number
    check(pa.table({"key": pa.array(keys, kind), "value": values}), NUMBERS, PUT)
    check(pa.table({"key": pa.array(keys, kind), "value": values}), TEXTS, PUT)


@pytest.mark.parametrize("kind", VALUE_KINDS, ids=str)
@pytest.mark.parametrize("special", [None, *INVALID[:3], nested(31)], ids=["null", "empty", "space", "null text", "31"])
@pytest.mark.parametrize("place", [0, KEYS_MIN // 2, KEYS_MIN - 1])
def test_one_invalid_value_suffices(kind: pa.DataType, special: str | None, place: int) -> None:
    values: list[str | None] = ['{"n":1}'] * KEYS_MIN
    rows = pa.table({"key": keys_of(KEYS_MIN), "value": column_of(values, kind)})
    assert isinstance(check(rows, TEXTS, PUT).operations, PutColumn)
    values[place] = special
    rows = pa.table({"key": keys_of(KEYS_MIN), "value": column_of(values, kind)})
    failed = [type(operation) is not Put for operation in check(rows, TEXTS, PUT).operations]
    assert failed == [index == place for index in range(KEYS_MIN)]


@pytest.mark.parametrize("special", [*VALID, *INVALID], ids=lambda text: f"{text[:20]!r} {len(text)}")
def test_each_value_among_canonical_ones(special: str) -> None:
    """Values that are all canonical are not encoded again."""
    for kind in (pa.utf8(), pa.large_binary()):
        values = ['{"n":1}'] * KEYS_MIN
        values[70] = special
        found = check(pa.table({"key": keys_of(KEYS_MIN), "value": column_of(values, kind)}), TEXTS, PUT)
        assert isinstance(found.operations, PutColumn) == (special in VALID)
        alone = check(pa.table({"key": keys_of(KEYS_MIN), "value": column_of([special] * KEYS_MIN, kind)}), TEXTS, PUT)
        assert isinstance(alone.operations, PutColumn) == (special in VALID)


@pytest.mark.parametrize("special", NOT_UTF8, ids=repr)
@pytest.mark.parametrize("kind", [kind for kind in VALUE_KINDS if "binary" in str(kind)], ids=str)
def test_values_that_are_not_utf8_are_invalid(kind: pa.DataType, special: bytes) -> None:
    values: list[Any] = [*["{}"] * 60, special, *["{}"] * 80]
    found = check(pa.table({"key": keys_of(141), "value": column_of(values, kind)}), TEXTS, PUT)
    assert [type(operation) is Put for operation in found.operations] == [index != 60 for index in range(141)]


@pytest.mark.parametrize("kind", PLAIN_KINDS, ids=str)
def test_values_have_a_limited_length_each(kind: pa.DataType) -> None:
    for length in (LONGEST - 1, LONGEST, LONGEST + 1):
        values = ["{}"] * KEYS_MIN
        values[100] = '{"s":"' + "x" * (length - 8) + '"}'
        rows = pa.table({"key": keys_of(KEYS_MIN), "value": column_of(values, kind)})
        check(rows, TEXTS, PUT, may_be_column=length <= LONGEST)


@pytest.mark.parametrize("size_bytes", [2000, 2090])
def test_a_batch_has_a_limited_size(size_bytes: int) -> None:
    values = ['{"s":"' + "x" * (size_bytes - 8) + '"}'] * 1000
    rows = pa.table({"key": keys_of(1000), "value": values})
    assert (rows.nbytes <= COLUMN_BYTES_MAX) == (size_bytes == 2000)
    check(rows, TEXTS, PUT, may_be_column=rows.nbytes <= COLUMN_BYTES_MAX)


@pytest.mark.parametrize("text", ['{"s":"' + "x" * 230 + '"}', '{"n":[' + ",".join(["1E15"] * 20) + "]}"])
def test_canonical_values_have_a_limited_size(text: str) -> None:
    """Rows of a dictionary share their texts, and `1E15` becomes sixteen digits."""
    for count in (5000, 10_000):
        rows = pa.table({"key": keys_of(count), "value": pa.array([text] * count).dictionary_encode()})
        assert rows.nbytes < COLUMN_BYTES_MAX
        check(rows, TEXTS, PUT, may_be_column=count == 5000)


@pytest.mark.parametrize("count", [KEYS_MIN - 1, KEYS_MIN, 257, 1025, 2500])
@pytest.mark.parametrize("length", [10, 600])
def test_batches_of_any_length(count: int, length: int) -> None:
    values = [f'{{"n":{index},"s":"{"x" * (length * index % 601)}"}}' for index in range(count)]
    rows = pa.table({"key": keys_of(count), "value": values})
    check(rows, TEXTS, PUT, may_be_column=count >= KEYS_MIN)
    check(divided(rows, count // 3), TEXTS, PUT, may_be_column=count >= KEYS_MIN)


def test_the_values_of_a_long_batch_are_decoded_in_pieces() -> None:
    for count, length in ((10 * PIECE_OPERATIONS, 10), (1000, 1500)):
        rows = pa.table({"key": keys_of(count), "value": ['{"s":"' + "x" * length + '"}'] * count})
        batch, pieces = counted(arrow_batch.decode(rows, TEXTS, PUT))
        assert isinstance(batch.operations, PutColumn)
        assert 10 <= pieces <= count


@pytest.mark.parametrize("kind", OTHER_KINDS, ids=str)
def test_keys_that_may_share_bytes_are_no_column(kind: pa.DataType) -> None:
    keys = keys_of(150)
    column = pa.DictionaryArray.from_arrays(
        pa.array(range(150), pa.int32()), pa.array(keys, kind.value_type if pa.types.is_dictionary(kind) else kind)
    )
    if not pa.types.is_dictionary(kind):
        column = pa.array(keys, kind)
    check(pa.table({"key": column, "value": ["{}"] * 150}), TEXTS, PUT, may_be_column=False)


def test_repeated_keys_may_be_in_a_column() -> None:
    found = check(pa.table({"key": ["a", "b"] * 75, "value": ['{"n":1}', '{"n":2}'] * 75}), TEXTS, PUT).operations
    assert isinstance(found, PutColumn)
    assert not found.keys_differ


COUNT = 150
BASE: dict[str, Any] = {"key": keys_of(COUNT), "value": [f'{{"n":{index}}}' for index in range(COUNT)]}


@pytest.mark.parametrize(
    ("more", "row_settings"),
    [
        ({"ttl_s": [5.0] * COUNT}, PUT),
        ({"ttl_s": [*[None] * 149, 5.0]}, PUT),
        ({"if_absent": [True] * COUNT}, PUT),
        ({"if_match": ["x"] * COUNT}, PUT),
        ({"sequence": [*range(COUNT)]}, RowSettings("put", "w")),
        ({"sequence": [*range(COUNT)], "writer": ["w"] * COUNT}, PUT),
        ({"default": ["{}"] * COUNT}, PUT),
        ({"update": ["{}"] * COUNT}, PUT),
        ({"partitions": [[0]] * COUNT}, PUT),
        ({"partitions": pa.nulls(COUNT, pa.list_(pa.int64()))}, PUT),
        ({}, RowSettings("put", returning=True)),
        ({}, RowSettings("update")),
        ({}, RowSettings("get")),
        ({}, RowSettings("delete")),
        ({}, RowSettings("steal")),
    ],
    ids=lambda given_: (
        "+".join(given_)
        if isinstance(given_, dict)
        else "-".join(f"{value}" for value in msgspec.structs.astuple(given_))
    ),
)
def test_other_members_and_other_operations_are_no_column(more: dict[str, Any], row_settings: RowSettings) -> None:
    check(pa.table({**BASE, **more}), TEXTS, row_settings, may_be_column=False)
    if row_settings.op == "put":
        ops = ["put"] * COUNT
        in_column = msgspec.structs.replace(row_settings, op=None)
        check(pa.table({**BASE, **more, "op": ops}), TEXTS, in_column, may_be_column=False)


@pytest.mark.parametrize("name", ["ttl_s", "if_absent", "if_match", "default", "update"])
def test_a_column_without_values_is_ignored_if_there_is_a_column_of_operations(name: str) -> None:
    kind = {"ttl_s": pa.float64(), "if_absent": pa.bool_()}.get(name, pa.utf8())
    rows = pa.table({**BASE, name: pa.nulls(COUNT, kind)})
    check(rows, TEXTS, PUT, may_be_column=False)
    found = check(rows.append_column("op", pa.array(["put"] * COUNT)), TEXTS, RowSettings())
    assert isinstance(found.operations, PutColumn)


@pytest.mark.parametrize("place", [0, 70, COUNT - 1])
@pytest.mark.parametrize("other", ["get", "delete", "update", "steal", None], ids=str)
def test_one_other_operation_among_puts(place: int, other: str | None) -> None:
    ops: list[str | None] = ["put"] * COUNT
    ops[place] = other
    check(pa.table({**BASE, "op": pa.array(ops, pa.utf8())}), TEXTS, RowSettings(), may_be_column=False)


@pytest.mark.parametrize("kind", [*KEY_KINDS, *OTHER_KINDS], ids=str)
def test_the_types_of_the_column_of_operations(kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        ops = pa.DictionaryArray.from_arrays(pa.array([0] * COUNT, pa.int32()), pa.array(["put"], kind.value_type))
    else:
        ops = pa.array(["put"] * COUNT, kind)
    assert isinstance(check(pa.table({**BASE, "op": ops}), TEXTS, RowSettings()).operations, PutColumn)


def test_a_batch_without_values_is_no_column() -> None:
    rows = pa.table({"key": keys_of(COUNT)})
    check(rows, TEXTS, PUT)
    check(rows.append_column("value", pa.nulls(COUNT, pa.utf8())), TEXTS, PUT)
    check(rows.append_column("op", pa.array(["put"] * COUNT)), TEXTS, RowSettings())


@pytest.mark.parametrize(
    ("spec", "key", "may_be_column"),
    [
        (TEXTS, "k{}", True),
        (NUMBERS, None, True),
        (TableSpec("t", KeySchema((KeyField("id"),))), "k{}", False),
        (TableSpec("t", INTEGERS), None, False),
        (TableSpec("t", COMPOSITE), "k{}", False),
        (PARTITIONED, "k{}", False),
        (TableSpec("t", ttl_s=60.0), "k{}", True),
    ],
    ids=["text", "integer", "named text", "named integer", "composite", "partitioned", "with ttl_s"],
)
def test_the_tables_whose_puts_are_in_a_column(spec: TableSpec, key: str | None, may_be_column: bool) -> None:
    keys = [key.format(index) if key else index for index in range(COUNT)]
    found = check(pa.table({"key": keys, "value": BASE["value"]}), spec, PUT, may_be_column=may_be_column)
    assert isinstance(found.operations, PutColumn) == may_be_column
    fields = RowSettings("put", fields=frozenset({"n"}))
    assert check(pa.table({"key": keys, "value": BASE["value"]}), spec, fields, may_be_column=may_be_column).fields


def test_values_that_contain_the_part_of_a_named_key() -> None:
    """Such a table checks each value against its key."""
    spec = TableSpec("t", KeySchema((KeyField("id"),)))
    rows = pa.table({"key": keys_of(COUNT), "value": ['{"id":"k7"}'] * COUNT})
    found = check(rows, spec, PUT, may_be_column=False)
    assert [type(operation) is Put for operation in found.operations].count(True) <= 1


@pytest.mark.parametrize("calls", [0, 1, 2, 5])
def test_after_the_deadline_there_is_no_column(calls: int) -> None:
    count, left = 2000, calls

    def expired() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    rows = pa.table({"key": keys_of(count), "value": [f'{{"n":{index}}}' for index in range(count)]})
    found = decoded(rows, TEXTS, PUT, expired).operations
    assert len(found) == count
    assert not isinstance(found, PutColumn)
    done = [type(operation) is Put for operation in found]
    assert done == sorted(done, reverse=True)
    assert {type(operation) for operation in found} == {Put, DeadlineExceeded}
