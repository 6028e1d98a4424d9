"""Settings of logs and traces."""

from typing import Literal

from pydantic import BaseModel, Field


class LogSettings(BaseModel, frozen=True, extra="forbid"):
    """The log's level and format, the share of successful requests to log, and the duration of a slow request."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
    requests: float = Field(default=0.01, ge=0, le=1)
    slow_s: float = Field(default=1.0, gt=0, le=3600)


class TraceSettings(BaseModel, frozen=True, extra="forbid"):
    """The endpoint for traces (OTLP over HTTP, none disables them), and the sampled share of traces that start here."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    sample: float = Field(default=0.01, ge=0, le=1)
