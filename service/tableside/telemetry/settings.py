"""Settings of logs and traces."""

from typing import Literal

from pydantic import BaseModel, Field


class LogSettings(BaseModel, frozen=True, extra="forbid"):
    """What is logged: from which level on, which share of the requests that succeeded, and what counts as slow."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
    requests: float = Field(default=0.01, ge=0, le=1)
    slow_s: float = Field(default=1.0, gt=0, le=3600)


class TraceSettings(BaseModel, frozen=True, extra="forbid"):
    """Where traces go, by OTLP over HTTP, and which share of those that begin here; none goes anywhere without one."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    sample: float = Field(default=0.01, ge=0, le=1)
