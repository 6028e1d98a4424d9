"""Records of other tools have no more elements than the limit, so that reading one does not block other requests."""

from collections.abc import Callable

import pytest

from tableside.core.errors import RecordUnreadable, TableError
from tableside.core.operations import Outcome
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
