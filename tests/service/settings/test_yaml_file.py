"""Reading YAML: limits on aliases, depth and size, and a path for every fault."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tableside.settings import SettingsError, load
from tableside.settings.faults import Faults
from tableside.settings.yaml_file import DEPTH_MAX, FILE_BYTES_MAX, NODES_MAX, NUMBER_LENGTH_MAX, parse_yaml, read_text


def data_and_faults(text: str) -> tuple[Any, dict[str, str]]:
    """Return the data of a text, and its faults by path."""
    faults = Faults()
    try:
        data = parse_yaml(text, "", faults)
    except SettingsError as error:
        data, faults.found = None, error.faults
    return data, {fault.path: fault.message for fault in faults.found}


MULTIPLYING = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)


def test_a_small_file_whose_aliases_multiply_is_refused_where_it_exceeds_the_limit() -> None:
    assert len(MULTIPLYING) < 1000
    _, faults = data_and_faults(MULTIPLYING)
    [(path, message)] = faults.items()
    assert path.startswith("a5.7.")
    assert message == f"here the file exceeds {NODES_MAX:,} values, with aliases counted in full"


def test_merge_keys_that_multiply_are_refused_too() -> None:
    lines = ["m0: &m0 {a: 1, b: 1, c: 1}"]
    lines += [f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 20)}]}}" for level in range(1, 6)]
    _, faults = data_and_faults("\n".join(lines))
    [path] = faults
    assert path.startswith("m5.<<.0.")


def test_a_value_that_contains_itself_is_one_fault_with_its_path() -> None:
    [(path, message)] = data_and_faults("stores: &a {m: *a}")[1].items()
    assert path.startswith("stores.m.m")
    assert message == f"is nested deeper than {DEPTH_MAX} levels"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_with_its_line(opening: str) -> None:
    assert data_and_faults("a:\n  " + opening * 100_000)[1] == {"": f"line 2 is nested deeper than {DEPTH_MAX} levels"}


def test_depth_counts_the_values_of_aliases() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, DEPTH_MAX + 1))
    assert list(data_and_faults(text)[1]) == [f"a{DEPTH_MAX - 2}" + ".0" * (DEPTH_MAX - 1)]
    assert data_and_faults("[" * (DEPTH_MAX - 1) + "x" + "]" * (DEPTH_MAX - 1))[1] == {}


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
    assert data_and_faults(f"a: {{<<: {source}, b: 1}}") == (
        {"a": {"b": 1}},
        {"a.<<": "is not a mapping or a list of mappings"},
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("yes", "a boolean"),
        ("off", "a boolean"),
        ("0x10", "a number"),
        ("1_000", "a number"),
        ("5", "a number"),
        ("1.5", "a number"),
        (".inf", "a number"),
        ("2026-01-01", "a date"),
        ("~", "null"),
        ("null", "null"),
    ],
)
def test_a_name_that_is_not_a_string_is_a_fault_and_keeps_its_text(name: str, kind: str) -> None:
    data, faults = data_and_faults(f"tables: {{{name}: {{store: a}}}}")
    assert faults == {f"tables.{name}": f"YAML reads this name as {kind}: quote it"}
    assert data == {"tables": {name: {"store": "a"}}}
    assert data_and_faults(f"tables: {{'{name}': {{}}}}") == ({"tables": {name: {}}}, {})


def test_a_table_with_such_a_name_is_reported_with_the_other_faults(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("stores: {a: {kind: memory}}\ntables: {no: {store: b}}\nmore: 1\nmore: 2\n")
    with pytest.raises(SettingsError) as refused:
        load(tmp_path / "f.yaml", {})
    assert [fault.path for fault in refused.value.faults] == ["more", "tables.no", "tables.no.store"]


@pytest.mark.parametrize("name", ["[a]", "{a: b}", "*a"])
def test_a_name_that_is_a_collection_is_a_fault(name: str) -> None:
    _, faults = data_and_faults(f"t: &a\n  {name} : 1")
    assert list(faults) == ["t"]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("2026-13-45", "cannot be read as a date; a text needs quotes"),
        ("0001-01-01T00:00:00+99:00", "cannot be read as a date; a text needs quotes"),
        ("!!int ''", "cannot be read as a number; a text needs quotes"),
        ("!!bool maybe", "cannot be read as a boolean; a text needs quotes"),
        ("!!timestamp soon", "cannot be read as a date; a text needs quotes"),
        ("9" * (NUMBER_LENGTH_MAX + 1), "cannot be read as a number; a text needs quotes"),
        ("1" + ":1" * 100_000, "cannot be read as a number; a text needs quotes"),
        ("!!binary aaaa", "has a YAML tag that is not supported; a text that begins with ! needs quotes"),
        ("!!set {a}", "has a YAML tag that is not supported; a text that begins with ! needs quotes"),
    ],
)
def test_a_value_that_cannot_be_read_is_a_fault_with_its_path(value: str, fault: str) -> None:
    assert data_and_faults(f"{{a: [1, {value}], b: 1, b: 2}}")[1] == {
        "a.1": fault,
        "b": "is given twice, in line 1",
    }


@pytest.mark.parametrize("value", ["9" * NUMBER_LENGTH_MAX, "'" + "9" * 1000 + "'", "=", "1.5", "!!str 5", "[]", "no"])
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


def test_a_named_pipe_without_a_writer_is_an_empty_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_text(tmp_path / "pipe") == ""


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a: 1")
    os.close(writing)
    assert read_text(f"/dev/fd/{reading}") == "a: 1"
    os.close(reading)
