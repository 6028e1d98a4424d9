"""Settings of logs and traces."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from ..core import checked_url


class LogSettings(BaseModel, frozen=True, extra="forbid"):
    """The log's level and format, the share of successful requests to log, and the duration of a slow request."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
    requests: float = Field(default=0.01, ge=0, le=1)
    slow_s: float = Field(default=1.0, gt=0, le=3600)


class TraceSettings(BaseModel, frozen=True, extra="forbid"):
    """The endpoint for traces (OTLP over HTTP, none disables them), and the sampled share of traces that start here."""

    endpoint: Annotated[str, Field(pattern=r"^https?://"), AfterValidator(checked_url)] | None = None
    sample: float = Field(default=0.01, ge=0, le=1)
