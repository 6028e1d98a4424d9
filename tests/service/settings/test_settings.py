"""A configuration: valid settings, and that all faults are reported together, each with its path."""

from pathlib import Path
from textwrap import dedent

import pytest

from tableside.settings import Settings, SettingsError, default_settings, load
from tableside.stores.rocksdb import RocksdbSettings


def loaded(tmp_path: Path, text: str, **environment: str) -> Settings:
    file = tmp_path / "tableside.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return load(file, environment)


def faults(tmp_path: Path, text: str, **environment: str) -> dict[str, str]:
    """Return the faults by path."""
    with pytest.raises(SettingsError) as refusal:
        loaded(tmp_path, text, **environment)
    found = refusal.value.faults
    assert len({fault.path for fault in found}) == len(found), found
    assert str(refusal.value).splitlines() == [str(fault) for fault in found]
    return {fault.path: fault.message for fault in found}


def test_without_a_configuration_records_are_in_rocksdb_and_writes_create_tables() -> None:
    settings = default_settings()
    [(name, store)] = settings.stores.items()
    assert store.kind == "rocksdb"
    assert isinstance(store.options, RocksdbSettings)
    assert store.options.path == "./tableside-data"
    assert (settings.auto_create, settings.default_store, settings.tables) == (True, name, {})
    assert settings.workers_fault(2) is not None


def test_a_file_is_read(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
        stores:
          local: {kind: rocksdb, path: ./data}
          fast: {kind: memory}
        tables:
          profiles: {store: local}
          aircraft:
            store: fast
            name: aircraft_v2
            key: {user: string, day: integer}
            ttl_s: 86400
            deadline_s: 2.5
        limits: {operations_max: 100}
        """,
    )
    assert set(settings.stores) == {"local", "fast"}
    assert settings.auto_create is False
    spec = settings.tables["aircraft"].spec("aircraft")
    assert [(field.name, field.type) for field in spec.key.fields] == [("user", "string"), ("day", "integer")]
    assert (spec.name, spec.name_in_store, spec.ttl_s) == ("aircraft", "aircraft_v2", 86400)
    assert settings.tables["aircraft"].deadline_s == 2.5
    plain = settings.tables["profiles"].spec("profiles")
    assert [(field.name, field.type) for field in plain.key.fields] == [(None, "string")]
    assert (plain.name_in_store, plain.ttl_s) == ("profiles", None)
    assert settings.limits.operations_max == 100
    assert settings.limits.body_bytes_max == 16 * 2**20


def test_an_unknown_option_is_rejected_with_a_suggestion_of_the_same_mapping(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        stores: {cache: {kind: redis, url: "redis://h/0", passwort: x}}
        tables: {t: {store: cache, consistncy: strong, prefx: a, read: {rate: 1, zone: 1}}}
        auth: {tokens: [{name: a, sha265: x}]}
        limits: {operation_max: 5}
        servers: 3
        """,
    )
    assert {path: message for path, message in found.items() if "option" in message} == {
        "stores.cache.passwort": "is not a known option: did you mean password?",
        "tables.t.consistncy": "is not a known option: did you mean consistency?",
        "tables.t.prefx": "is not a known option: did you mean prefix?",
        "tables.t.read.rate": "is not a known option: did you mean rate_per_s?",
        "tables.t.read.zone": "is not a known option",
        "auth.tokens.0.sha265": "is not a known option: did you mean sha256?",
        "limits.operation_max": "is not a known option: did you mean operations_max?",
        "servers": "is not a known option: did you mean stores?",
    }


MEMORY = "stores: {fast: {kind: memory}}"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("stores: 3", "stores", "must be a mapping, such as {local: {kind: rocksdb}}"),
        ("stores: {}", "stores", "needs at least 1 entry"),
        ("tables: {}", "stores", "field required"),
        ("stores: {a: null}", "stores.a", "must be a mapping"),
        ("stores: {a: {kind: rocksdb, path: ''}}", "stores.a.path", "at least 1 character"),
        ("stores: {a: {kind: rocksdb, path: x, block_cache_bytes: 1}}", "stores.a.block_cache_bytes", "greater than"),
        (f"{MEMORY}\ntables: {{a/b: {{store: fast}}}}", "tables.a/b", "a name has 1 to 128 characters"),
        (f"{MEMORY}\nauto_create: some", "auto_create", "must be true or false"),
        (f"{MEMORY}\ndefault_store: b", "default_store", "there is no store 'b'"),
        (f"{MEMORY}\ntables: {{a: {{store: fats}}}}", "tables.a.store", "no store 'fats': did you mean fast?"),
        ("{stores: {a: {kind: memory}, b: {kind: memory}}, auto_create: true}", "default_store", "is required by"),
        (
            "stores: {a: {kind: dynamodb, endpoint_url: 'ftp://h'}}",
            "stores.a.endpoint_url",
            "must begin with http:// or",
        ),
        ("stores: &a [1", "", "is not YAML"),
        ("stores: !!python/object:os.system {}", "stores", "has a YAML tag that is not supported"),
    ],
)
def test_a_fault_has_the_path_and_the_words_of_the_file(tmp_path: Path, text: str, path: str, message: str) -> None:
    assert message in faults(tmp_path, text)[path]


@pytest.mark.parametrize(
    ("table", "path", "message"),
    [
        ("{}", "tables.t.store", "field required"),
        ("{store: fast, key: {}}", "tables.t.key", "needs at least 1 entry"),
        ("{store: fast, key: {id: uuid}}", "tables.t.key.id", "should be 'string' or 'integer'"),
        (f"{{store: fast, key: {dict.fromkeys('abcdefghi', 'string')}}}", "tables.t.key", "may have at most 8 entries"),
        ("{store: fast, ttl_s: 0}", "tables.t.ttl_s", "greater than 0"),
        ("{store: fast, deadline_s: .inf}", "tables.t.deadline_s", "less than or equal to 3600"),
        ("{store: fast, consistency: weak}", "tables.t.consistency", "should be 'strong' or 'eventual'"),
        ("{store: fast, name: a/b}", "tables.t.name", "should match pattern"),
        ("null", "tables.t", "must be a mapping"),
    ],
)
def test_a_fault_of_a_table_has_its_path(tmp_path: Path, table: str, path: str, message: str) -> None:
    assert message in faults(tmp_path, f"{MEMORY}\ntables: {{t: {table}}}\n")[path]


def test_a_fault_causes_no_further_faults(tmp_path: Path) -> None:
    text = (
        "{stores: {a: null, b: {kind: nope}}, tables: {t: {store: a}, u: {store: b}}, limits: {x: 1}, auto_create: 7}"
    )
    assert faults(tmp_path, text).keys() == {"stores.a", "stores.b.kind", "limits.x", "auto_create"}


def test_repeated_names_are_rejected(tmp_path: Path) -> None:
    found = faults(tmp_path, "stores:\n  a: {kind: memory}\n  a: {kind: rocksdb, path: x, y: 1}\n")
    assert found == {"stores.a": "is given twice, in lines 2 and 3", "stores.a.y": "is not a known option"}
    found = faults(tmp_path, "{stores: {a: {kind: memory}}, tables: {t: {store: a, store: a}}}")
    assert found == {"tables.t.store": "is given twice, in line 1"}


def test_two_tables_with_one_stored_name_are_rejected(tmp_path: Path) -> None:
    text = "{stores: {a: {kind: memory}, b: {kind: memory}}, tables: {t: {store: a}, u: {store: a, name: t}, %s}}"
    found = faults(tmp_path, text % "v: {store: a}")
    assert found.keys() == {"tables.u.name"}
    assert "'t'" in found["tables.u.name"]
    loaded(tmp_path, text.replace("u: {store: a", "u: {store: b") % "v: {store: a}")


def test_variables_are_read_from_the_environment(tmp_path: Path) -> None:
    text = "{stores: {a: {kind: rocksdb, path: '${BASE}/${LEAF}/$HOME'}}, tables: {t: {store: a, ttl_s: '${TTL}'}}}"
    settings = loaded(tmp_path, text, BASE="${B}", LEAF="x", TTL="60", B="y", HOME="z")
    assert isinstance(settings.stores["a"].options, RocksdbSettings)
    assert settings.stores["a"].options.path == "${B}/x/$HOME"
    assert settings.tables["t"].ttl_s == 60


def test_every_unset_variable_is_a_fault(tmp_path: Path) -> None:
    text = "{stores: {a: {kind: rocksdb, path: '${BASE}'}}, tables: {t: {store: '${STORE}', name: 'x$HOME'}}}"
    found = faults(tmp_path, text, OTHER="1")
    assert "BASE" in found["stores.a.path"]
    assert "tables.t.name" in found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("${HOME_TS:-hunter2}/d", "'${HOME_TS…}' is not a variable: write ${NAME}"),
        ("/x/${TS-NO}", "'${TS…}' is not a variable: write ${NAME}"),
        ("${}", "'${}' is not a variable: write ${NAME}"),
        ("${A", "a ${ has no }: write ${NAME}"),
        ("${" * 100_000, "a ${ has no }: write ${NAME}"),
    ],
)
def test_a_malformed_variable_is_a_fault_and_its_default_is_not_shown(tmp_path: Path, text: str, fault: str) -> None:
    found = faults(tmp_path, f"stores: {{a: {{kind: rocksdb, path: '{text}'}}}}", A="x")
    assert found == {"stores.a.path": fault}


@pytest.mark.parametrize(
    ("password", "fault"),
    [
        ("*marked", "line 4, column 15: found undefined alias; a text that begins with \\* needs quotes"),
        ("!marked", "stores.cache.password: has a YAML tag that is not supported; a text that begins with ! needs"),
        ("!marked!marked x", "not YAML: line 4, column 15: .* tag"),
    ],
)
def test_a_password_with_yaml_syntax_is_not_shown(tmp_path: Path, password: str, fault: str) -> None:
    file = tmp_path / "tableside.yaml"
    file.write_text(f"stores:\n  cache:\n    kind: redis\n    password: {password}\n")
    with pytest.raises(SettingsError, match=fault) as refusal:
        load(file, {})
    assert "marked" not in str(refusal.value)


def test_a_fault_does_not_show_the_value(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refusal:
        loaded(tmp_path, "{stores: {a: {kind: memory, password: hunter2}}, auto_create: '${SECRET}'}", SECRET="sesame")
    assert "hunter2" not in str(refusal.value)
    assert "sesame" not in str(refusal.value)


# Stores that consist of other stores


def test_invalid_parts_of_a_store_are_listed(tmp_path: Path) -> None:
    many = ", ".join(["a"] * 257)
    found = faults(
        tmp_path,
        f"""
        stores:
          a: {{kind: memory}}
          r: {{kind: redis, url: "redis://127.0.0.1:6379/0"}}
          one: {{kind: partitioned, partitions: [a, absent, a, two, 7]}}
          two: {{kind: partitioned, partitions: [r, two]}}
          none: {{kind: partitioned, partitions: []}}
          word: {{kind: partitioned, partitions: a}}
          many: {{kind: partitioned, partitions: [{many}]}}
          nothing: {{kind: partitioned}}
        tables:
          t: {{store: mixed, prefix: "x:"}}
          u: {{store: two, limiter: two}}
        """,
    )
    assert found["stores.one.partitions.1"] == "there is no store 'absent'"
    assert found["stores.one.partitions.2"] == "'a' is already partition 0"
    assert found["stores.one.partitions.3"] == "'two' is itself partitioned"
    assert "string" in found["stores.one.partitions.4"]
    assert found["stores.two.partitions.1"] == "'two' is itself partitioned"
    assert "at least 1 entry" in found["stores.none.partitions"]
    assert "list" in found["stores.word.partitions"]
    assert "at most 256 entries" in found["stores.many.partitions"]
    assert "required" in found["stores.nothing.partitions"]
    assert found["tables.t.store"] == "there is no store 'mixed'"
    assert "kind redis" in found["tables.u.limiter"]


def test_tables_over_different_kinds_of_store_have_no_options_of_one_kind(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        stores:
          mixed: {kind: partitioned, partitions: [a, r]}
          a: {kind: memory}
          r: {kind: redis, url: "redis://127.0.0.1:6379/0"}
        tables: {t: {store: mixed, prefix: "x:"}}
        """,
    )
    assert found == {"tables.t.prefix": "is not a known option"}


def test_two_tables_with_the_same_records_are_detected_across_partitions(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        stores:
          a: {kind: memory}
          b: {kind: memory}
          c: {kind: memory}
          ab: {kind: partitioned, partitions: [a, b]}
          bc: {kind: partitioned, partitions: [b, c]}
        tables:
          orders: {store: ab}
          mine: {store: a, name: orders}
          other: {store: bc, name: orders}
          free: {store: c, name: others}
        """,
    )
    assert found == {
        "tables.mine.name": "table 'orders' already keeps its records under this name",
        "tables.other.name": "table 'orders' already keeps its records under this name",
    }


def test_a_table_cannot_have_the_name_of_a_generation_of_another(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        stores:
          a: {kind: memory}
          b: {kind: memory}
          ab: {kind: partitioned, partitions: [a, b]}
        tables:
          planes: {store: a, generations: true}
          planes_ts_2: {store: a}
          mine: {store: ab, name: planes_ts_31}
          elsewhere: {store: b, name: planes_ts_2}
          events: {store: a}
          events_ts_2024: {store: a}
        """,
    )
    problem = "is the name of a generation of table 'planes', which has generations"
    assert found == {"tables.planes_ts_2.name": problem, "tables.mine.name": problem}
