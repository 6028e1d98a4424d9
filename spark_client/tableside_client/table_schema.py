"""The properties of a table that reads and writes of frames depend on: key fields, tokens, partitions, and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

PARTITION_COLUMN = "partition"
"""The column with the index of a record's partition, in scans of a partitioned table."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of one request, and of all requests in flight in one process. The defaults are the service's."""

    operations_max: int = 10_000
    body_bytes_max: int = 16 * 2**20
    in_flight_max: int = 1024
    operations_in_flight_max: int = 100_000
    bytes_in_flight_max: int = 256 * 2**20

    @classmethod
    def from_description(cls, limits: Mapping[str, int]) -> Self:
        """Read the member `limits` of a table's description. A limit that it does not contain has its default."""
        return cls(**{field.name: int(limits[field.name]) for field in fields(cls) if field.name in limits})


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's key fields, support for tokens, number of partitions, and the service's limits.

    An unnamed key has the name None. `generation` is the current one, None without `generations` or a first write.
    """

    key_names: tuple[str | None, ...] = (None,)
    key_types: tuple[str, ...] = ("string",)
    tokens: bool = True
    partitions: int | None = None
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    generations: bool = True
    generation: int | None = None

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """Read the description of a table."""
        fields, capabilities = description["key"], description["capabilities"]
        generations = bool(capabilities.get("generations", False))
        return cls(
            tuple(field.get("name") for field in fields),
            tuple(field["type"] for field in fields),
            bool(capabilities.get("tokens", False)),
            description.get("partitions"),
            ServiceLimits.from_description(description["limits"]),
            generations,
            description.get("generation") if generations else None,
        )

    def pinned(self, table: str) -> str:
        """Return the name of the current generation, so that requests read one content, or of the table without any."""
        return table if self.generation is None or "@" in table else f"{table}@{self.generation}"


def wire_keys(table_schema: TableSchema, columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns in the order of the key, and the names of the key's fields.

    Columns are matched by name, in any case, or else by position. Raises `ValueError` if one has another field's name.
    """
    names = [str(name) for name in table_schema.key_names]
    if len(columns) == 1 or len(names) != len(columns) or None in table_schema.key_names:
        return tuple(columns), tuple(columns)
    lower = [name.lower() for name in names]
    if set(columns) == set(names):
        columns = names
    elif sorted(map(str.lower, columns)) == sorted(lower):
        columns = sorted(columns, key=lambda column: lower.index(column.lower()))
    for column, name in zip(columns, lower, strict=True):
        if column.lower() != name and column.lower() in lower:
            raise ValueError(
                f"the key column {column} has the name of another part of the key ({', '.join(names)}): rename it"
            )
    return tuple(columns), tuple(names)
