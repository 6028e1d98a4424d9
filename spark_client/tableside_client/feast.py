"""`TablesideOnlineStore`: keeps the online features of Feast in tables of the service. Requires feast.

A feature is a member of a record, named `view:feature`. Its value is Feast's protocol buffer in base64: the only form
that is exact for every type, and that contains the type. The member `view:` is the time of the event, in microseconds.
Writes carry this time as their order, so the newest event wins.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from feast import Entity, FeatureView, RepoConfig
from feast.infra.online_stores.helpers import compute_versioned_name
from feast.infra.online_stores.online_store import OnlineStore
from feast.infra.supported_async_methods import SupportedAsyncMethods
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.repo_config import FeastConfigBaseModel

from tableside_client import AsyncClient, Client, LoadError, Outcome, TableNotFound
from tableside_client.json_batch import EPOCH, chunks, microseconds

FIELDS_MAX = 1_000
"""The maximum number of members that a read names. For more features it reads the whole record."""

WrittenRow: TypeAlias = tuple[EntityKey, Mapping[str, Value], datetime, datetime | None]
"""An entity's key, features by name, and the times of the event and of its creation."""

ReadRow: TypeAlias = tuple[datetime | None, dict[str, Value] | None]
"""The time of the event and the features, None for both if there are none."""

Progress: TypeAlias = Callable[[int], Any] | None


class TablesideOnlineStoreConfig(FeastConfigBaseModel):  # type: ignore[misc]  # the project's environment lacks feast
    """The entry `online_store` of `feature_store.yaml`.

    Attributes:
        type: The name of the store's class.
        url: The address of the service, as for `Client`. The next attributes are also arguments of `Client`.
        token: The bearer token.
        token_file: A file with the bearer token.
        ca_file: PEM file of the authorities that may sign the service's certificate.
        certificate_file: PEM file of the client's certificate.
        key_file: PEM file of the certificate's key.
        record_per: `view`: each feature view has a table, `PROJECT_VIEW`. `entity`: the views with the same join keys
            share a table, `PROJECT_JOIN_KEYS`, with one record for each entity.
        nulls: `write`: a null feature becomes null. `omit`: it stays unchanged, so that a push may fill some columns.
        key_ttl_seconds: The time to live of a record after its newest write. Default: that of the table.
    """

    type: Literal["tableside_client.feast.TablesideOnlineStore"] = "tableside_client.feast.TablesideOnlineStore"
    url: str = ""
    token: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    record_per: Literal["view", "entity"] = "view"
    nulls: Literal["write", "omit"] = "write"
    key_ttl_seconds: int | None = None

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments of the client."""
        return dict(self.model_dump(exclude={"type", "record_per", "nulls", "key_ttl_seconds"}))


class TablesideOnlineStore(OnlineStore):  # type: ignore[misc]  # the project's environment lacks feast
    """Feast's online store in tables of the service.

    Reads and writes raise `TablesideError`. A write with failed rows raises `LoadError`. It may be repeated.
    """

    _versioned_read_supported = True
    _client: Client | None = None
    _async_client: AsyncClient | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def async_supported(self) -> SupportedAsyncMethods:
        """Both reads and writes have asynchronous methods."""
        return SupportedAsyncMethods(read=True, write=True)

    def online_write_batch(
        self, config: RepoConfig, table: FeatureView, data: Sequence[WrittenRow], progress: Progress
    ) -> None:
        """Write rows. An older row than the stored one changes nothing. Features that a row lacks stay unchanged."""
        view = _View(config, table)
        records = self._blocking(config).table(view.table)
        for rows in chunks(data):
            _raise_failures(rows, records.batch(map(view.write, rows)))
            if progress:
                progress(len(rows))

    async def online_write_batch_async(
        self, config: RepoConfig, table: FeatureView, data: Sequence[WrittenRow], progress: Progress
    ) -> None:
        """Write rows, as `online_write_batch` does."""
        view = _View(config, table)
        records = self._asynchronous(config).table(view.table)
        for rows in chunks(data):
            _raise_failures(rows, await records.batch(map(view.write, rows)))
            if progress:
                progress(len(rows))

    def online_read(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: Sequence[EntityKey],
        requested_features: Sequence[str] | None = None,
    ) -> list[ReadRow]:
        """Return the time of the event and the features of each entity, in the order of the keys.

        A table without a first write need not exist: it has no features.
        """
        view, keys = _View(config, table, requested_features), list(map(record_key, entity_keys))
        try:
            values = self._blocking(config).table(view.table).get_many(keys, fields=view.fields)
        except TableNotFound:
            values = {}
        return [view.row(values.get(key)) for key in keys]

    async def online_read_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: Sequence[EntityKey],
        requested_features: Sequence[str] | None = None,
    ) -> list[ReadRow]:
        """Return the time of the event and the features of each entity, as `online_read` does."""
        view, keys = _View(config, table, requested_features), list(map(record_key, entity_keys))
        try:
            values = await self._asynchronous(config).table(view.table).get_many(keys, fields=view.fields)
        except TableNotFound:
            values = {}
        return [view.row(values.get(key)) for key in keys]

    def update(
        self,
        config: RepoConfig,
        tables_to_delete: Sequence[FeatureView],
        tables_to_keep: Sequence[FeatureView],
        entities_to_delete: Sequence[Entity],
        entities_to_keep: Sequence[Entity],
        partial: bool,
    ) -> None:
        """Remove the features of deleted views. Creates no table: that is the service's configuration."""
        views = [_View(config, table) for table in tables_to_delete]
        if config.online_store.record_per == "view":
            self._empty(config, {view.table for view in views})
        else:
            for view in views:  # The records stay, even if they are empty.
                records = self._blocking(config).table(view.table)
                patch = dict.fromkeys([view.time, *view.members.values()])
                try:
                    found = [record.key for record in records.scan(fields=[view.time]) if record.value]
                except TableNotFound:
                    continue
                outcomes = records.batch({"op": "update", "key": key, "update": patch} for key in found)
                failures = [outcome.error for outcome in outcomes if outcome.error and outcome.error.status != 404]
                if failures:
                    raise failures[0]

    def teardown(self, config: RepoConfig, tables: Sequence[FeatureView], entities: Sequence[Entity]) -> None:
        """Delete all records of the tables of these views."""
        self._empty(config, {_View(config, table).table for table in tables})

    async def close(self) -> None:
        """Close the connections of the asynchronous methods."""
        if self._async_client is not None and self._loop is asyncio.get_running_loop():
            await self._async_client.close()
            self._async_client = self._loop = None

    def _empty(self, config: RepoConfig, tables: Iterable[str]) -> None:
        for table in tables:
            try:
                self._blocking(config).table(table).delete_all(everything=True)
            except TableNotFound:
                continue

    def _blocking(self, config: RepoConfig) -> Client:
        if self._client is None:
            self._client = Client(**config.online_store.client_arguments())
        return self._client

    def _asynchronous(self, config: RepoConfig) -> AsyncClient:
        loop = asyncio.get_running_loop()
        if self._async_client is None or self._loop is not loop:
            self._loop, self._async_client = loop, AsyncClient(**config.online_store.client_arguments())
        return self._async_client


class _View:
    """A feature view, or some features of it, and the form of its rows in a table."""

    def __init__(self, config: RepoConfig, table: FeatureView, features: Sequence[str] | None = None) -> None:
        name = compute_versioned_name(table, config.registry.enable_online_feature_view_versioning)
        self._omits_nulls = config.online_store.nulls == "omit"
        self._alone = config.online_store.record_per == "view"
        self._ttl = {"ttl_s": ttl_s} if (ttl_s := config.online_store.key_ttl_seconds) else {}
        self.time = f"{name}:"  # the member with the time of the event, and the prefix of the others
        self.members = {
            feature: f"{self.time}{feature}" for feature in features or [feature.name for feature in table.features]
        }
        self.fields = [self.time, *self.members.values()] if len(self.members) < FIELDS_MAX else None
        self.table = f"{config.project}_{name if self._alone else '_'.join(sorted(table.join_keys))}"

    def write(self, row: WrittenRow) -> dict[str, Any]:
        """Return an ordered write. A row with all members of its record is a put, which needs only one order."""
        entity_key, features, event_time, _ = row
        order = microseconds(event_time)
        members: dict[str, Any] = {self.time: order}
        for feature, value in features.items():
            if not self._omits_nulls or value.WhichOneof("val"):
                members[f"{self.time}{feature}"] = b64encode(value.SerializeToString()).decode()
        is_whole = self._alone and members.keys() >= set(self.members.values())
        # A merge patch: its names are literal, while `$set` takes dots for paths.
        change = {"op": "put", "value": members} if is_whole else {"op": "update", "update": members}
        return {**change, "key": record_key(entity_key), "order": order, **self._ttl}

    def row(self, value: Mapping[str, Any] | None) -> ReadRow:
        if value is None or (order := value.get(self.time)) is None:
            return None, None
        return EPOCH + timedelta(microseconds=order), {
            feature: Value.FromString(b64decode(value.get(member, ""))) for feature, member in self.members.items()
        }


def record_key(entity: EntityKey) -> str:
    """Return the values of an entity's join keys in the order of their names, as JSON: `[1001]`, `["ada",7]`.

    Integers of all sizes and timestamps are numbers. Bytes are an object: `{"base64":"AAE="}`.
    """
    values = dict(zip(entity.join_keys, entity.entity_values, strict=True))
    ordered = [_join_value(name, values[name]) for name in sorted(values)]
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))


def _join_value(name: str, value: Value) -> Any:
    if (kind := value.WhichOneof("val")) is None:
        raise ValueError(f"the join key {name} has no value")
    join_value = getattr(value, kind)
    return {"base64": b64encode(join_value).decode()} if isinstance(join_value, bytes) else join_value


def _raise_failures(rows: Sequence[WrittenRow], outcomes: Sequence[Outcome[Any]]) -> None:
    pairs = zip(rows, outcomes, strict=True)
    failures = [(record_key(row[0]), outcome.error) for row, outcome in pairs if outcome.error]
    if failures:
        raise LoadError(failures, len(rows) - len(failures))
