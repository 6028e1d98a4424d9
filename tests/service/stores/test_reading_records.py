"""How stores read records: many as each alone, and those of other tools within the limit on elements."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, strategies as st

from tableside.core.batch import ARROW_RECORDS_MIN
from tableside.core.errors import RecordUnreadable, TableError
from tableside.core.operations import Outcome
from tableside.core.transitions import Memory, Stored
from tableside.core.values import ELEMENTS_MAX
from tableside.stores.postgres.reads import canonical
from tableside.stores.redis import records as redis_records
from tableside.stores.rocksdb import records as rocksdb_records

READ: dict[str, Callable[[bytes], Outcome | bytes]] = {
    "redis": lambda raw: redis_records.read_all([raw], (), {})[0],
    "rocksdb": lambda raw: rocksdb_records.read(raw, 0),
    "postgres": canonical,
}


@pytest.mark.parametrize("store", READ)
def test_a_record_with_too_many_elements_is_unreadable_with_the_reason(store: str) -> None:
    full = b'{"a":[%b]}' % b", ".join([b"[1.0]"] * (ELEMENTS_MAX // 2 - 2))
    assert not isinstance(READ[store](full), TableError)
    beyond = READ[store](full.replace(b"[1.0]", b"[1.0], 1, 1, 1, 1", 1))
    assert isinstance(beyond, RecordUnreadable)
    assert f"{ELEMENTS_MAX} elements" in beyond.detail


NOW_MS = 1_700_000_000_000
STORED = st.builds(
    Stored,
    st.binary(max_size=20).map(lambda text: b'{"a":"%b"}' % text.hex().encode()),
    st.integers(0, 2**64 - 1).map("{:016x}".format),
    st.sampled_from([0, 0, NOW_MS - 1, NOW_MS, NOW_MS + 1]),
    st.sampled_from([Memory()] * 9 + [Memory((("w", 5),))]),
)
TOO_SHORT = [b"", b"{", b"\1", b"\1\0", b"\1\0" + bytes(7), b"\1\1" + bytes(15)]
FOREIGN = st.sampled_from([*TOO_SHORT, b'{"a": 1}', b"1}\r\t\r\t" + b" " * 12, b"\2\0" + bytes(20)])
RAWS: dict[str, st.SearchStrategy[bytes]] = {
    "redis": STORED.map(lambda stored: redis_records.pack_all([stored.value or b""])[0]),
    "rocksdb": STORED.map(rocksdb_records.pack),
}
READ_ALL: dict[str, Callable[[Sequence[bytes | None]], Sequence[Outcome]]] = {
    "redis": lambda raws: redis_records.read_all(raws, (), {}),
    "rocksdb": lambda raws: rocksdb_records.read_all(raws, NOW_MS),
}


@pytest.mark.parametrize("store", RAWS)
@given(data=st.data())
def test_many_records_are_read_as_each_alone(store: str, data: st.DataObject) -> None:
    few = data.draw(st.lists(st.none() | RAWS[store] | FOREIGN, min_size=1, max_size=3))
    outcomes = READ_ALL[store](few * ARROW_RECORDS_MIN)
    assert [*map(repr, outcomes)] == [repr(READ_ALL[store]([raw])[0]) for raw in few] * ARROW_RECORDS_MIN
