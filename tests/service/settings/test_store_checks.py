"""Faults that a start would meet only in its stores: addresses, directories, and tables that a store cannot have."""

from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.connection import SSLConnection

from tableside.settings import SettingsError, validate
from tableside.stores.redis.settings import RedisUrl, parse_redis_url


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
        ({"kind": "postgres", "dsn": "postgresql://u:secret@[::1/x"}, "stores.s.dsn"),
        ({"kind": "postgres", "dsn": "postgresql://u:se℀cret@h/x"}, "stores.s.dsn"),
        ({"kind": "redis", "url": "redis://h:notaport/0"}, "stores.s.url"),
        ({"kind": "dynamodb", "endpoint_url": "http://h:notaport"}, "stores.s.endpoint_url"),
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
        {"kind": "redis", "url": "rediss://u:p@[::1]:6380/0"},
        {"kind": "dynamodb", "endpoint_url": "https://dynamodb.example"},
    ],
)
def test_valid_addresses_are_no_faults(store: dict[str, Any]) -> None:
    assert faults({"s": store}) == {}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        *((f"redis://h:6379{path}", "the number of a database") for path in ("/cache", "/1x", "/1/2", "/-1", "/ 1")),
        ("redis://h:6379#5", "has a #"),
        ("redis://h?db=1", "unknown options: db"),
        *((f"redis://u:se{mark}cret@h:6379/0", "not encoded") for mark in "/?#"),
        ("redis://h/0?timeout=5", "unknown options: timeout"),
        ("redis://:secret@h:port", "port"),
        ("redis://h/0?secret", "NAME=VALUE"),
        ("rediss://h/0?ssl_cert_reqs=none&ssl_cert_reqs=none", "twice"),
        ("redis://h/0?ssl_cert_reqs=none", "needs rediss://"),
        ("rediss://h/0?ssl_cert_reqs=secret", "invalid ssl_cert_reqs"),
        ("rediss://h/0?ssl_ca_certs=/secret.pem", "ssl_ca_certs"),
        (f"rediss://h/0?ssl_ca_certs={__file__}", "not PEM"),
        (f"rediss://h/0?ssl_keyfile={__file__}", "ssl_certfile"),
        ("redis://:6379/0", "has no host"),
        ("http://h/0", "must be redis://"),
        ("redis+cluster://h/0", "must be redis://"),
        ("unix:///run/redis.sock", "must be redis://"),
        ("redis+sentinel://h:26379,h2:26379", "names no service"),
    ],
)
def test_a_redis_url_that_cannot_be_meant_is_a_fault(url: str, message: str) -> None:
    found = faults({"s": {"kind": "redis", "url": url}})
    assert list(found) == ["stores.s.url"]
    assert message in found["stores.s.url"]
    assert "secret" not in found["stores.s.url"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", {"host": "h", "port": 6379, "db": 0}),
        ("valkey://h:7/03", {"host": "h", "port": 7, "db": 3}),
        ("REDIS://h/2", {"host": "h", "port": 6379, "db": 2}),
        ("redis://u:p%2Fw%23@[::1]:7/1", {"host": "::1", "port": 7, "db": 1, "username": "u", "password": "p/w#"}),
        ("redis://:p@w:x@h/1", {"host": "h", "port": 6379, "db": 1, "password": "p@w:x"}),
        ("valkeys://h", {"host": "h", "port": 6379, "db": 0, "connection_class": SSLConnection}),
    ],
)
def test_a_redis_url_names_server_database_and_user(url: str, expected: dict[str, Any]) -> None:
    assert parse_redis_url(url) == RedisUrl(expected)


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_redis_url_names_sentinels_and_their_service(scheme: str) -> None:
    parsed = parse_redis_url(f"{scheme}+sentinel://u:p@h,[::1]:7/records/4")
    assert parsed == RedisUrl({"username": "u", "password": "p", "db": 4}, (("h", 26379), ("::1", 7)), "records")
    parsed = parse_redis_url(f"{scheme}s+sentinel://h/records")
    assert parsed == RedisUrl({"db": 0, "connection_class": SSLConnection}, (("h", 26379),), "records")


@pytest.mark.parametrize(
    "options",
    [
        {"url": "redis+sentinel://h/records/0", "cluster": True},
        {"url": "redis://h/1", "cluster": True},
        {"url": "redis://h/0", "sentinel_password": "secret"},
    ],
)
def test_redis_options_that_contradict_the_url_are_a_fault(options: dict[str, Any]) -> None:
    found = faults({"s": {"kind": "redis", **options}})
    assert list(found) == ["stores.s"]
    assert "secret" not in found["stores.s"]


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
        ({"store": "postgres", "key": {"_ts_writers": "string"}}, "a key field may not be named '_ts_writers'"),
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
