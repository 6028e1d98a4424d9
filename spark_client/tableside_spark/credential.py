"""Where the bearer token comes from: an argument, a file, or the environment. Never shown, never logged."""

import os
from dataclasses import dataclass, field
from pathlib import Path

TOKEN_VARIABLE = "TABLESIDE_TOKEN"  # noqa: S105 - the name of a variable, not a secret


@dataclass(frozen=True, slots=True)
class Credential:
    """A reference to a bearer token, resolved where the request is made.

    A file is read again when the service answers 401, so that a rotated token needs no new job.
    """

    literal: str | None = field(default=None, repr=False)
    path: str | None = None
    variable: str = TOKEN_VARIABLE

    def read(self) -> str | None:
        """The token as it is now, or None where none is configured."""
        if self.literal is not None:
            return self.literal
        if self.path is not None:
            return Path(self.path).read_text(encoding="utf-8").strip()
        return os.environ.get(self.variable) or None
