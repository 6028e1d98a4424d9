"""Reading YAML: limits on depth and size, and a path for every fault."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from tableside.settings import Fault, Settings, SettingsError, load, load_text, validate
from tableside.settings.yaml_file import DEPTH_MAX, FILE_BYTES_MAX, parse_yaml, read_text


def data_and_faults(text: str) -> tuple[Any, dict[str, str]]:
    """Return the data of a text, and its faults by path."""
    faults: list[Fault] = []
    try:
        data = parse_yaml(text, "", faults)
    except SettingsError as error:
        data, faults = None, error.faults
    return data, {fault.path: fault.message for fault in faults}


def test_a_value_that_contains_itself_is_a_fault() -> None:
    assert data_and_faults("stores: &a {m: *a}")[1] == {"": "a value contains itself"}


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_with_its_line(opening: str) -> None:
    assert data_and_faults("a:\n  " + opening * 100_000)[1] == {"": f"line 2 is nested deeper than {DEPTH_MAX} levels"}


def test_aliases_and_merge_keys_of_normal_size_are_used() -> None:
    text = """
    limits: &limits {rate_per_s: 5, burst: 9}
    more: &more {burst: 7, attempts_max: 2}
    name: &name text
    read: {<<: *limits, burst: 1}
    write: {burst: 1, <<: [*more, *limits]}
    both: {<<: [*more, *limits]}
    texts: [*name, *name]
    """
    data, faults = data_and_faults(text)
    assert faults == {}
    assert data["read"] == {"rate_per_s": 5, "burst": 1}
    assert data["write"] == {"rate_per_s": 5, "burst": 1, "attempts_max": 2}
    assert data["both"] == {"rate_per_s": 5, "burst": 7, "attempts_max": 2}
    assert data["texts"] == ["text", "text"]
    assert data == yaml.safe_load(text)


@pytest.mark.parametrize("source", ["5", "[5]", "[[]]", "null"])
def test_only_mappings_are_merged(source: str) -> None:
    _, faults = data_and_faults(f"a: {{<<: {source}, b: 1}}")
    assert "for merging" in faults[""]


def test_a_repeated_mapping_may_merge_another() -> None:
    data, faults = data_and_faults("a: &a {n: 1}\nb: &b {<<: *a, n: 2}\nc: *b\nd: *b")
    assert (data["c"], data["d"], faults) == ({"n": 2}, {"n": 2}, {})


@pytest.mark.parametrize("name", ["yes", "off", "0x10", "1_000", "5", "1.5", ".inf", "2026-01-01", "~", "null"])
def test_a_name_is_text(name: str) -> None:
    assert data_and_faults(f"tables: {{{name}: {{store: a}}}}") == ({"tables": {name: {"store": "a"}}}, {})


def test_faults_of_yaml_are_reported_with_the_other_faults(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("stores: {a: {kind: memory}}\ntables: {no: {store: b}}\nmore: 1\nmore: 2\n")
    with pytest.raises(SettingsError) as refused:
        load(tmp_path / "f.yaml", {})
    assert [fault.path for fault in refused.value.faults] == ["more", "tables.no.store"]


@pytest.mark.parametrize("name", ["[a]", "{a: b}", "*a"])
def test_a_name_that_is_a_collection_is_a_fault(name: str) -> None:
    _, faults = data_and_faults(f"t: &a\n  {name} : 1")
    assert list(faults) == ["t"]


@pytest.mark.parametrize(
    "value",
    [
        *("2026-13-45", "0001-01-01T00:00:00+99:00", "!!int ''", "!!bool maybe", "!!timestamp soon"),
        *("!secret x", "!secret {a: 1}", "!!set {a}"),
    ],
)
def test_a_value_that_cannot_be_read_is_a_fault_with_its_path(value: str) -> None:
    faults = data_and_faults(f"{{a: [1, {value}], b: 1, b: 2}}")[1]
    assert faults.keys() == {"a.1", "b"}
    assert "needs quotes" in faults["a.1"]
    assert "secret" not in faults["a.1"]
    assert faults["b"] == "is given twice, in line 1"


@pytest.mark.parametrize("value", ["9" * 100, "'" + "9" * 1000 + "'", "=", "1.5", "!!str 5", "[]", "no"])
def test_values_have_the_types_of_yaml(value: str) -> None:
    expected = "=" if value == "=" else yaml.safe_load(value)
    assert data_and_faults(f"a: {value}") == ({"a": expected}, {})


def test_a_file_has_one_document() -> None:
    assert "more than one YAML document" in data_and_faults("a: 1\n---\nb: 1\n")[1][""]
    assert data_and_faults("") == (None, {})


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tableside.settings.yaml_file.FILE_BYTES_MAX", 20)
    (tmp_path / "f.yaml").write_text("a: 1 # " + "x" * 13)
    assert len(read_text(tmp_path / "f.yaml")) == 20
    (tmp_path / "f.yaml").write_text("a: 1 # " + "x" * 14)
    with pytest.raises(SettingsError, match="larger than 20 bytes"):
        read_text(tmp_path / "f.yaml")


def test_reading_an_endless_file_stops_at_the_limit() -> None:
    with pytest.raises(SettingsError, match=f"larger than {FILE_BYTES_MAX} bytes"):
        read_text("/dev/zero")


# Mutated configurations: every file is either valid or refused with a list of faults

ENVIRONMENT = {"NAME": "text"}

COMPLETE: dict[str, Any] = {
    "stores": {
        "local": {"kind": "rocksdb", "path": "data", "sweep_every_s": 5},
        "cache": {"kind": "redis", "url": "redis://h:6379/0", "username": "u", "password": "${NAME}"},
        "orders": {"kind": "postgres", "dsn": "postgresql://u:p@h:5432/x", "schema": "s"},
        "aws": {"kind": "dynamodb", "endpoint_url": "http://h:8000", "region": "eu-west-1"},
        "all": {"kind": "partitioned", "partitions": ["cache", "local"]},
    },
    "tables": {
        "visits": {"store": "orders", "layout": "columns", "key": {"user": "string", "day": "integer"}, "ttl_s": 5},
        "hot": {"store": "cache", "prefix": "h:", "cache": {"records_max": 5, "ttl_s": 1}},
        "slow": {"store": "aws", "read": {"rate_per_s": 5}, "limiter": "cache", "batch": {"operations_max": 10}},
        "parts": {"store": "all", "write": {"attempts_max": 5, "pause_s": 1}},
    },
    "limits": {"in_flight_max": 5, "drain_s": 0.5},
    "auth": {
        "tokens": [{"name": "a", "sha256": "1" * 64, "read": ["*"]}],
        "issuers": [{"issuer": "https://i", "audience": "x", "rules": [{"claims": {"sub": ["a*"]}, "read": ["*"]}]}],
    },
    "auto_create": True,
    "default_store": "local",
    "hosts": ["a.example"],
    "traces": {"endpoint": "http://h:4318", "sample": 0.5},
}

ODD: list[Any] = [
    *(None, True, -1, 0, 2**70, 1.5, float("nan"), float("inf"), "", "x", "\0", "é" * 300, "a/b", "${NAME}", "${NONE}"),
    *("http://[", "redis://h:x", "postgresql://[::", "unix://", "/", "../..", "~", b"bytes", [], {}, [[]], {"a": {}}),
    *(
        [None] * 3,
        {"": 1},
        {"\0": None},
        {"kind": "memory"},
        {"kind": []},
        {"kind": "partitioned", "partitions": ["all"]},
    ),
]


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return every collection in the data with each of its names or positions."""
    names = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else []
    return [place for name in names for place in [(data, name), *places(data[name])]]


def refusal(text: str) -> list[Fault]:
    """Return the faults of a text. Any exception but SettingsError fails the test."""
    return _faults(lambda: load_text(text, ENVIRONMENT, directory=Path()))


def _faults(validated: Callable[[], Settings]) -> list[Fault]:
    try:
        validated()
    except SettingsError as error:
        return error.faults
    return []


def test_the_complete_configuration_is_valid() -> None:
    assert refusal(yaml.safe_dump(COMPLETE)) == []


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), odd=st.lists(st.sampled_from(ODD), min_size=1, max_size=4))
def test_odd_values_anywhere_are_valid_or_faults(seed: int, odd: list[Any]) -> None:
    chosen, data = random.Random(seed), copy.deepcopy(COMPLETE)
    for value in odd:
        collection, name = chosen.choice(places(data))
        collection[name] = copy.deepcopy(value)
    _faults(lambda: validate(data, ENVIRONMENT))
    refusal(yaml.safe_dump(data))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), pieces=st.lists(st.sampled_from(list("[]{}:,-&*!|>'\"%@`#?~<=\t\n 0a")), max_size=6))
def test_texts_with_inserted_or_removed_characters_are_valid_or_faults(seed: int, pieces: list[str]) -> None:
    chosen, text = random.Random(seed), yaml.safe_dump(COMPLETE)
    for piece in pieces:
        place, dropped = chosen.randrange(len(text)), chosen.choice([0, 0, 1, 5, 200])
        text = text[:place] + piece + text[place + dropped :]
    refusal(text)
