"""Settings of the service as a whole: limits, retry budget, console, host names and reverse proxies."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, IPvAnyNetwork, WithJsonSchema

HostName = Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$")]
"""A host name as clients send it, without a port. `*.` in front matches every name below it."""

Hosts = Annotated[tuple[HostName, ...], Field(max_length=100)]
"""The accepted host names. None accepts every name, or only the names of this machine if there is no `auth`."""

ROOT_PATH = re.compile("(?!/(v1|console|docs)(/|$))(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
"""The pattern of a prefix of the service's paths. It does not begin with one of these paths."""


def _checked_root_path(text: str) -> str:
    if text and not ROOT_PATH.fullmatch(text):
        raise ValueError("must be a path such as /tableside, with no slash at its end, and not /v1, /console or /docs")
    return text


RootPath = Annotated[str, AfterValidator(_checked_root_path)]
"""The prefix of the service's paths behind a reverse proxy."""

Network = Annotated[IPvAnyNetwork, WithJsonSchema({"type": "string", "format": "IP address or network"})]

TrustedProxies = Annotated[tuple[Network, ...], Field(max_length=100)]
"""The addresses of the proxies whose header `X-Forwarded-Prefix` the service uses."""


class LimitSettings(BaseModel, frozen=True, extra="forbid"):
    """Limits for one request, and for all requests in flight.

    Sizes are counted after decompression. The service immediately rejects a request that exceeds a limit on requests in
    flight. `in_flight_max` limits the number of requests. `operations_in_flight_max` limits the number of their
    operations. `bytes_in_flight_max` limits the bytes of their bodies. With several stores, one store may use at most
    the fraction `store_share_max` of the part of these three limits that the other stores leave free. After SIGTERM the
    service continues for `drain_s` seconds: it answers /readyz with 503, and closes each connection after its next
    response. Then it accepts no more connections. The process ends at most `shutdown_s` seconds after the signal.
    """

    body_bytes_max: int = Field(default=16 * 2**20, ge=1024)
    operations_max: int = Field(default=10_000, ge=1)
    response_bytes_max: int = Field(default=64 * 2**20, ge=1024)
    in_flight_max: int = Field(default=1024, ge=1)
    operations_in_flight_max: int = Field(default=100_000, ge=1)
    bytes_in_flight_max: int = Field(default=256 * 2**20, ge=1024)
    store_share_max: float = Field(default=0.75, gt=0, le=1)
    drain_s: float = Field(default=0.5, ge=0, le=600)
    shutdown_s: float = Field(default=30.0, ge=1, le=3600)


class RetryBudgetSettings(BaseModel, frozen=True, extra="forbid"):
    """The limit on retries against one store: `share` of its operations, and `per_s` more each second."""

    share: float = Field(default=0.2, ge=0, le=10)
    per_s: float = Field(default=10.0, ge=0, le=1e6)


class ConsoleSettings(BaseModel, frozen=True, extra="forbid"):
    """The web console at /console: whether it is served, and whether it allows changing records."""

    enabled: bool = True
    edit: bool = False
