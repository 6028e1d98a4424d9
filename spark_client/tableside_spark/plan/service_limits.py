"""The service's limits that a job's requests must respect."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of one request, and of all requests in flight in one process of the service.

    The defaults are those of the service, for a table that does not exist yet.
    """

    operations_max: int = 10_000
    body_bytes_max: int = 16 * 2**20
    in_flight_max: int = 1024
    operations_in_flight_max: int = 100_000
    bytes_in_flight_max: int = 256 * 2**20

    @classmethod
    def from_description(cls, limits: Mapping[str, int]) -> Self:
        """Read the member `limits` of a table's description. A limit that it does not contain has its default."""
        return cls(**{field.name: int(limits[field.name]) for field in fields(cls) if field.name in limits})
