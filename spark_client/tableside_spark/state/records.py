"""Records of a table by place and item, whichever way the table writes its keys. Knows nothing of what they mean."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tableside_client.client import TableClient
from tableside_client.errors import TableError
from tableside_spark.state.key_layout import Key, request_parts

KEYS_ONLY = ("uid",)
"""A member that is short, or absent: scans that need no values ask for it."""


class Records:
    """The records of one table. Requests are bounded, and asked again as the client does."""

    def __init__(self, client: TableClient, table: str) -> None:
        self._client = client
        self._table = table
        self._names: list[str] = []

    def get(self, keys: Sequence[Key], fields: Sequence[str] | None = None) -> list[dict[str, Any] | None]:
        """Return the value of each key in its order, of `fields` only; None where there is no record."""
        return [value for part in request_parts(keys) for value in self._get(part, fields)]

    def delete(self, keys: Sequence[Key]) -> None:
        """Remove records, in the order of the keys as far as requests go; that there is none is no failure."""
        for part in request_parts(keys):
            answer = self._client.batch(self._table, pa.table({"key": self._column(part)}), op="delete")
            for row in answer.select(["status", "code", "detail"]).to_pylist():
                self._refuse(row)

    def update(self, key: Key, update: Mapping[str, Any]) -> None:
        """Apply an update that changes nothing when it is applied again, to `{}` where there is no record."""
        column = self._column([key])
        operation = pa.table({"key": column, "update": [json.dumps(update)], "default": ["{}"]})
        answer = self._client.batch(self._table, operation, op="update", at_least_once=True)
        self._refuse(answer.select(["status", "code", "detail"]).to_pylist()[0])

    def scans_in_order(self) -> bool:
        """Tell whether the table reads one place without reading others, as far as it says."""
        return bool(self._described()["capabilities"].get("sorted_scan"))

    def scan(self, place: str) -> Iterator[list[Key]]:
        """Yield the keys of a place, some at a time."""
        if len(self._key_names()) == 2:
            pages = self._client.scan(self._table, fields=KEYS_ONLY, partition=place)
        else:
            pages = self._client.scan(self._table, fields=KEYS_ONLY, prefix=f"{place}/")
        for page in pages:
            yield from request_parts(_key(place, key) for key in page["key"].to_pylist())

    def _get(self, keys: Sequence[Key], fields: Sequence[str] | None) -> Iterator[dict[str, Any] | None]:
        answer = self._client.batch(self._table, pa.table({"key": self._column(keys)}), op="get", fields=fields)
        for row in answer.select(["status", "code", "detail", "value"]).to_pylist():
            if row["code"] == "record_not_found":
                yield None
            else:
                self._refuse(row)
                yield json.loads(row["value"])

    def _refuse(self, row: Mapping[str, Any]) -> None:
        if row["code"] is not None:
            raise TableError(self._table, row["code"], row["status"], row["detail"])

    def _column(self, keys: Sequence[Key]) -> pa.Array:
        names = self._key_names()
        if len(names) == 1:
            return pa.array([f"{key.place}/{key.item}" for key in keys], pa.string())
        columns = [pa.array([key.place for key in keys]), pa.array([key.item for key in keys])]
        return pa.StructArray.from_arrays(columns, names=names)

    def _key_names(self) -> list[str]:
        if not self._names:
            fields = self._described()["key"]
            if len(fields) > 2 or any(field["type"] != "string" for field in fields):
                raise TableError(self._table, "unfit_table", 200, "no table for state: its keys are no strings")
            self._names = [field["name"] or "key" for field in fields]
        return self._names

    def _described(self) -> dict[str, Any]:
        return self._client.describe(self._table)


def _key(place: str, key: Any) -> Key:
    return Key(*key.values()) if isinstance(key, dict) else Key(place, key.removeprefix(f"{place}/"))
