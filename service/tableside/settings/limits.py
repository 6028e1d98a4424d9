"""What an operator may set of the service as a whole: its limits, log, traces, and the page for people."""

from typing import Annotated

from pydantic import BaseModel, Field

HostName = Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$")]
"""The name of a host as callers ask for it, without a port; with `*.` before it, whatever is below that name."""

Hosts = Annotated[tuple[HostName, ...], Field(max_length=100)]
"""The names under which the service is asked; none is any, and where there is no `auth` only this machine's own."""


class LimitSettings(BaseModel, frozen=True, extra="forbid"):
    """What one request may be, and how much at once; sizes are counted after decompression.

    In flight are requests (`in_flight_max`), their operations, and the bytes of their bodies; what comes above is
    refused at once. On SIGTERM the service goes on for `drain_s` seconds with /readyz at 503 and connections that are
    closed after the next answer, then accepts nothing more; it has ended `shutdown_s` after the signal at the latest.
    """

    body_bytes_max: int = Field(default=16 * 2**20, ge=1024)
    operations_max: int = Field(default=10_000, ge=1)
    response_bytes_max: int = Field(default=64 * 2**20, ge=1024)
    in_flight_max: int = Field(default=1024, ge=1)
    operations_in_flight_max: int = Field(default=100_000, ge=1)
    bytes_in_flight_max: int = Field(default=256 * 2**20, ge=1024)
    drain_s: float = Field(default=0.5, ge=0, le=600)
    shutdown_s: float = Field(default=30.0, ge=1, le=3600)


class RetryBudgetSettings(BaseModel, frozen=True, extra="forbid"):
    """How much may be tried again of what is asked of one store: a share of it, and so much a second beside that."""

    share: float = Field(default=0.2, ge=0, le=10)
    per_s: float = Field(default=10.0, ge=0, le=1e6)


class ConsoleSettings(BaseModel, frozen=True, extra="forbid"):
    """The page for people, /console: whether there is one, and whether records can be changed on it."""

    enabled: bool = True
    edit: bool = False
