"""Faults that a start would meet only in its stores: addresses, directories, and tables that a store cannot have."""

from pathlib import Path
from typing import Any

import pytest

from tableside.settings import SettingsError, validate


def faults(stores: dict[str, Any], tables: dict[str, Any] | None = None, **top: Any) -> dict[str, str]:
    """Return the faults by path."""
    try:
        validate({"stores": stores, "tables": tables or {}, **top})
    except SettingsError as error:
        return {fault.path: fault.message for fault in error.faults}
    return {}


PORT = "has a port that is not a number from 1 to 65535, or an invalid host"


@pytest.mark.parametrize(
    ("store", "path"),
    [
        ({"kind": "postgres", "dsn": "postgresql://u:secret@h:notaport/x"}, "stores.s.dsn"),
        ({"kind": "postgres", "dsn": "postgresql://u:secret@h:5432,h2:0/x"}, "stores.s.dsn"),
        ({"kind": "postgres", "dsn": "postgresql://h/x?port=5432,99999"}, "stores.s.dsn"),
        ({"kind": "postgres", "dsn": "postgresql://u:secret@[::1/x"}, "stores.s.dsn"),
        ({"kind": "postgres", "dsn": "postgresql://u:se℀cret@h/x"}, "stores.s.dsn"),
        ({"kind": "redis", "url": "redis://h:notaport/0"}, "stores.s.url"),
        ({"kind": "redis", "url": "redis://h:0/0"}, "stores.s.url"),
        ({"kind": "dynamodb", "endpoint_url": "http://h:notaport"}, "stores.s.endpoint_url"),
        ({"kind": "dynamodb", "endpoint_url": "http://h:65536"}, "stores.s.endpoint_url"),
        ({"kind": "dynamodb", "endpoint_url": "http://:8000"}, "stores.s.endpoint_url"),
    ],
)
def test_an_address_with_an_invalid_port_is_a_fault(store: dict[str, Any], path: str) -> None:
    found = faults({"s": store})
    assert list(found) == [path]
    assert "secret" not in found[path]


def test_the_endpoint_of_traces_is_checked_too() -> None:
    assert faults({"s": {"kind": "memory"}}, traces={"endpoint": "http://h:x"}) == {"traces.endpoint": PORT}


@pytest.mark.parametrize(
    "store",
    [
        {"kind": "postgres", "dsn": "postgresql://u:p%40w@h1:5432,h2:5433,h3/x?port=5432"},
        {"kind": "postgres", "dsn": "postgresql://[::1]:5433/x"},
        {"kind": "postgres", "dsn": "postgresql:///x?host=/var/run/postgresql"},
        {"kind": "redis", "url": "unix:///run/redis.sock"},
        {"kind": "redis", "url": "rediss://u:p@[::1]:6380/0"},
        {"kind": "dynamodb", "endpoint_url": "https://dynamodb.example"},
    ],
)
def test_valid_addresses_are_no_faults(store: dict[str, Any]) -> None:
    assert faults({"s": store}) == {}


def rocksdb(*paths: object) -> dict[str, Any]:
    return {f"s{number}": {"kind": "rocksdb", "path": str(path)} for number, path in enumerate(paths)}


def test_two_stores_cannot_share_a_directory_in_any_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    spellings = [tmp_path / "real", "real", "./real/", "real/../real", "link", "link/."]
    found = faults(rocksdb(*spellings))
    assert found == {f"stores.s{number}.path": "is the directory of store 's0'" for number in range(1, 6)}


def test_a_directory_within_that_of_another_store_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "outer")
    found = faults(rocksdb(tmp_path / "link" / "a" / "b", tmp_path / "outer", tmp_path / "outer-2"))
    assert found == {"stores.s0.path": "is within the directory of store 's1'"}


def test_a_file_in_the_place_of_a_directory_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = faults(rocksdb(tmp_path / "file", tmp_path / "file" / "within" / "it"))
    message = f"{tmp_path / 'file'} is a file, not a directory"
    assert found["stores.s0.path"] == message
    assert "stores.s1.path" in found
    assert list(faults(rocksdb("a\0b"))) == ["stores.s0.path"]


STORES: dict[str, Any] = {
    "memory": {"kind": "memory"},
    "postgres": {"kind": "postgres", "dsn": "postgresql://h/x"},
    "redis": {"kind": "redis", "url": "redis://h/0"},
    "cluster": {"kind": "redis", "url": "redis://h/0", "cluster": True},
    "dynamodb": {"kind": "dynamodb"},
    "parts": {"kind": "partitioned", "partitions": ["postgres"]},
}
TWO = {"a": "string", "b": "integer"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"store": "postgres", "key": {"value": "string"}}, "a key field may not be named 'value'"),
        ({"store": "parts", "key": {"value": "string"}}, "a key field may not be named 'value'"),
        ({"store": "postgres", "key": {"_ts_writers": "string"}}, "a key field may not be named '_ts_writers'"),
        (
            {"store": "postgres", "layout": "columns", "key": {"_ts_version": "string"}},
            "a key field may not be named '_ts_version'",
        ),
        ({"store": "postgres", "key": {"k" * 64: "string"}}, "at most 63 bytes"),
        ({"store": "postgres", "name": "t" * 64}, "at most 63 bytes"),
        ({"store": "redis", "exclusive": True}, "need a composite key"),
        ({"store": "redis", "hash_tag": True, "key": TWO, "prefix": "{}"}, "no effect"),
        ({"store": "cluster", "exclusive": True, "key": TWO}, "needs `hash_tag: true`"),
        ({"store": "dynamodb", "name": "t"}, "3 to 255 characters"),
        ({"store": "dynamodb", "key": {**TWO, "c": "string"}}, "one or two parts"),
        ({"store": "dynamodb", "key": {"a": "string"}, "ttl_attribute": "a"}, "ttl_attribute is a key attribute"),
    ],
)
def test_a_table_that_its_store_cannot_have_is_a_fault(table: dict[str, Any], message: str) -> None:
    found = faults(STORES, {"table": table}, default_store="memory")
    assert list(found) == ["tables.table"]
    assert message in found["tables.table"]


def test_all_faults_of_a_table_are_listed() -> None:
    with pytest.raises(SettingsError) as refused:
        validate({"stores": STORES, "tables": {"t" * 64: {"store": "postgres", "key": {"value": "string"}}}})
    assert len(refused.value.faults) == 2


@pytest.mark.parametrize(
    "table",
    [
        {"store": "memory", "key": {"value": "string"}},
        {"store": "postgres", "layout": "columns", "key": {"value": "string"}},
        {"store": "postgres", "key": {"key": "string"}},
        {"store": "redis", "exclusive": True, "key": TWO},
        {"store": "cluster", "exclusive": True, "hash_tag": True, "key": TWO},
        {"store": "dynamodb", "key": TWO},
    ],
)
def test_a_table_that_its_store_can_have_is_no_fault(table: dict[str, Any]) -> None:
    assert faults(STORES, {"table": table}) == {}


@pytest.mark.parametrize("name", ["", "a\0b", "k" * 256])
def test_the_name_of_a_key_field_is_that_of_a_member(name: str) -> None:
    found = faults(STORES, {"t": {"store": "memory", "key": {name: "string"}}})
    assert found == {"tables.t.key": "a name has 1 to 255 characters, and none of them is U+0000"}
