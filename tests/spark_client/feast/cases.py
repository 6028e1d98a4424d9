"""Rows of features through Feast's interface of online stores. `test_feast` runs these cases, where Feast is installed.

The service at TABLESIDE_URL creates tables. The one at TABLESIDE_STRICT_URL has none.
"""

import asyncio
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from feast import Entity, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.infra.online_stores.helpers import get_online_store_from_config
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Int64List, Value
from feast.types import Int64

from tableside_client import Client, LoadError, TableNotFound, TablesideError
from tableside_client.feast import TablesideOnlineStore

TYPE = "tableside_client.feast.TablesideOnlineStore"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ONE, TWO, THREE = (Value(int64_val=number) for number in (1, 2, 3))


class Features:
    """A view on a new project, written and read by blocking or asynchronous calls."""

    def __init__(self, record_per: str, *, asynchronous: bool = False, url: str = "", **options: Any) -> None:
        store = {"type": TYPE, "url": url or os.environ["TABLESIDE_URL"], "record_per": record_per, **options}
        project = f"p{uuid.uuid4().hex[:12]}"
        self.config = RepoConfig(
            project=project, provider="local", registry="none", online_store=store, entity_key_serialization_version=3
        )
        self.store: TablesideOnlineStore = get_online_store_from_config(self.config.online_store)
        self._asynchronous = asynchronous

    def write(self, view: FeatureView, *rows: Any) -> None:
        data = [(key, values, time, None) for key, values, time in rows]
        if self._asynchronous:
            asyncio.run(self._closed(self.store.online_write_batch_async(self.config, view, data, None)))
        else:
            self.store.online_write_batch(self.config, view, data, None)

    def read(self, view: FeatureView, *keys: EntityKey, names: Sequence[str] | None = None) -> list[Any]:
        if self._asynchronous:
            return asyncio.run(self._closed(self.store.online_read_async(self.config, view, list(keys), names)))
        return self.store.online_read(self.config, view, list(keys), names)

    async def _closed(self, call: Any) -> Any:
        try:
            return await call
        finally:
            await self.store.close()

    def table(self, name: str) -> Any:
        return Client(self.config.online_store.url).table(f"{self.config.project}_{name}")


def view(name: str, *features: str, keys: Sequence[str] = ("driver",)) -> FeatureView:
    made = FeatureView(
        name=name,
        entities=[Entity(name=key, value_type=ValueType.INT64) for key in keys],
        schema=[Field(name=feature, dtype=Int64) for feature in features],
        source=FileSource(path="unused.parquet", timestamp_field="event_timestamp"),
    )
    made.entity_columns = [Field(name=key, dtype=Int64) for key in keys]  # as `feast apply` does
    return made


def entity(**values: Value) -> EntityKey:
    return EntityKey(join_keys=list(values), entity_values=list(values.values()))


ADA, GRACE = (entity(driver=Value(int64_val=number)) for number in (1001, 1002))
STATS = view("stats", "a", "b")


@pytest.fixture(params=["view", "entity"])
def record_per(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["blocking", "asynchronous"])
def features(request: pytest.FixtureRequest, record_per: str) -> Features:
    return Features(record_per, asynchronous=request.param)


def test_late_rows_and_rows_of_some_features_leave_newer_ones(features: Features) -> None:
    assert features.read(STATS, ADA) == [(None, None)]
    features.write(STATS, (ADA, {"a": TWO, "b": TWO}, NOON), (ADA, {"a": ONE, "b": ONE}, NOON - SECOND))
    features.write(STATS, (ADA, {"b": THREE}, NOON + SECOND))
    features.write(STATS, (ADA, {"a": ONE, "b": ONE}, NOON - SECOND), (GRACE, {"a": ONE}, NOON))
    assert features.read(STATS, GRACE, ADA, ADA) == [
        (NOON, {"a": ONE, "b": Value()}),
        *[(NOON + SECOND, {"a": TWO, "b": THREE})] * 2,
    ]
    assert features.read(STATS, ADA, names=["b"]) == [(NOON + SECOND, {"b": THREE})]
    features.write(STATS, (ADA, {"a": THREE, "b": Value()}, NOON + 2 * SECOND))
    assert features.read(STATS, ADA) == [(NOON + 2 * SECOND, {"a": THREE, "b": Value()})]


def test_a_null_feature_may_stay_unchanged(record_per: str) -> None:
    features = Features(record_per, nulls="omit")
    features.write(STATS, (ADA, {"a": ONE, "b": ONE}, NOON), (ADA, {"a": TWO, "b": Value()}, NOON + SECOND))
    assert features.read(STATS, ADA) == [(NOON + SECOND, {"a": TWO, "b": ONE})]


@pytest.mark.parametrize(
    "value",
    [
        Value(double_val=float("nan")),
        Value(int64_list_val=Int64List(val=[1, 2])),
        Value(bytes_val=b"\x00\xff"),
        Value(string_val="\0 ü"),
        Value(),
    ],
    ids=lambda value: value.WhichOneof("val") or "null",
)
def test_values_of_every_type_are_exact(record_per: str, value: Value) -> None:
    features = Features(record_per)
    features.write(STATS, (ADA, {"a": value}, NOON))
    [(_, row)] = features.read(STATS, ADA)
    assert row["a"].SerializeToString() == value.SerializeToString()
    assert row["a"].WhichOneof("val") == value.WhichOneof("val")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"driver": Value(int64_val=-1)}, "[-1]"),
        ({"driver": Value(string_val='1"é')}, '["1\\"é"]'),
        ({"z": Value(string_val="ada"), "c": Value(unix_timestamp_val=5)}, '[5,"ada"]'),
        ({"driver": Value(bytes_val=b"\x00\x01")}, '[{"base64":"AAE="}]'),
    ],
)
def test_the_key_is_the_values_of_the_join_keys(record_per: str, values: Mapping[str, Value], key: str) -> None:
    features, stats = Features(record_per), view("stats", "a", keys=tuple(values))
    features.write(stats, (entity(**values), {"a": ONE}, NOON))
    assert features.read(stats, entity(**dict(reversed(list(values.items())))))[0][1] == {"a": ONE}
    [record] = features.table("stats" if record_per == "view" else "_".join(sorted(values))).scan()
    assert record.key == key


@pytest.mark.parametrize("name", ["$set", "_ts", "a.b", 'q"'])
def test_names_of_features_are_literal(record_per: str, name: str) -> None:
    features, odd = Features(record_per), view("odd", name, "other")
    features.write(odd, (ADA, {name: ONE, "other": ONE}, NOON))
    features.write(odd, (ADA, {name: TWO}, NOON + SECOND))
    assert features.read(odd, ADA, names=[name]) == [(NOON + SECOND, {name: TWO})]
    assert features.read(odd, ADA) == [(NOON + SECOND, {name: TWO, "other": ONE})]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (datetime(2026, 11, 20, 12), NOON),  # noqa: DTZ001 - Feast takes it for UTC
        (datetime(2026, 11, 20, 14, tzinfo=timezone(timedelta(hours=2))), NOON),
        (datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC), datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ],
)
def test_times_are_utc_and_exact(record_per: str, written: datetime, read: datetime) -> None:
    features = Features(record_per)
    features.write(STATS, (ADA, {"a": ONE}, written))
    assert features.read(STATS, ADA, names=["a"]) == [(read, {"a": ONE})]


def test_many_entities_and_a_row_that_fails(features: Features) -> None:
    keys = [entity(driver=Value(int64_val=number)) for number in range(2_500)]
    features.write(STATS, *((key, {"a": ONE, "b": TWO}, NOON) for key in keys))
    assert features.read(STATS, *keys) == [(NOON, {"a": ONE, "b": TWO})] * len(keys)
    with pytest.raises(LoadError) as raised:
        features.write(STATS, (entity(driver=Value(string_val="x" * 5_000)), {"a": ONE}, NOON), (ADA, {"a": ONE}, NOON))
    assert (len(raised.value.failures), raised.value.written) == (1, 1)


def test_views_of_one_entity_are_separate(record_per: str) -> None:
    features, other = Features(record_per), view("other", "a")
    features.write(STATS, (ADA, {"a": ONE, "b": ONE}, NOON))
    assert features.read(other, ADA) == [(None, None)]
    features.write(other, (ADA, {"a": TWO}, NOON - SECOND))
    assert features.read(STATS, ADA) == [(NOON, {"a": ONE, "b": ONE})]
    assert features.read(other, ADA) == [(NOON - SECOND, {"a": TWO})]
    features.store.update(features.config, [other], [], [], [], partial=False)
    assert features.read(other, ADA) == [(None, None)]
    assert features.read(STATS, ADA) == [(NOON, {"a": ONE, "b": ONE})]
    features.write(other, (ADA, {"a": THREE}, NOON - SECOND))
    assert features.read(other, ADA) == [(NOON - SECOND, {"a": THREE})]
    features.store.teardown(features.config, [STATS, other], [])
    assert [features.read(each, ADA) for each in (STATS, other)] == [[(None, None)]] * 2
    assert not list(features.table("stats" if record_per == "view" else "driver").scan())


def test_a_view_may_have_more_than_a_thousand_features() -> None:
    names = [f"f{number}" for number in range(1_200)]
    features, wide = Features("view"), view("wide", *names)
    features.write(wide, (ADA, dict.fromkeys(names, ONE), NOON))
    features.write(wide, (ADA, {"f7": TWO}, NOON + SECOND))
    [(time, row)] = features.read(wide, ADA)
    assert (time, len(row), row["f7"], row["f8"]) == (NOON + SECOND, 1_200, TWO, ONE)
    with pytest.raises(TablesideError, match="1000"):
        Features("entity").write(wide, (ADA, dict.fromkeys(names, ONE), NOON))


def test_the_time_to_live_is_that_of_the_option(record_per: str) -> None:
    features = Features(record_per, key_ttl_seconds=3_600)
    before = datetime.now(UTC)
    features.write(STATS, (ADA, {"a": ONE, "b": ONE}, NOON))
    record = features.table("stats" if record_per == "view" else "driver").record("[1001]")
    assert timedelta(minutes=59) < datetime.fromisoformat(record.expires_at) - before < timedelta(minutes=61)


def test_without_a_table_writes_fail_and_reads_find_nothing(record_per: str) -> None:
    features = Features(record_per, url=os.environ["TABLESIDE_STRICT_URL"])
    features.store.update(features.config, [STATS], [], [], [], partial=False)
    assert features.read(STATS, ADA) == [(None, None)]
    with pytest.raises(TableNotFound):
        features.write(STATS, (ADA, {"a": ONE}, NOON))
