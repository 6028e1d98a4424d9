"""The bearer token: from an argument, a file or the environment. It is never part of a message or a `repr`."""

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TOKEN_VARIABLE = "TABLESIDE_TOKEN"  # noqa: S105 - the name of a variable, not a secret
REFRESH_INTERVAL_S = 60.0
"""The maximum age of a cached token. Token files are renewed minutes before the old token expires."""


class CredentialError(ValueError):
    """A token that cannot be read, or is not valid in a header. The message does not contain the token."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A reference to a bearer token, resolved in the process that sends the requests."""

    literal: str | None = field(default=None, repr=False)
    path: str | None = None
    variable: str = TOKEN_VARIABLE

    def read(self) -> str | None:
        """Read the current token, None if none is configured. Raises `CredentialError`, without the token."""
        if self.literal is not None:
            return _checked(self.literal, "the token")
        if self.path is not None:
            try:
                text = Path(self.path).read_text(encoding="utf-8")
            except UnicodeDecodeError:  # The original error contains the file's content.
                raise CredentialError(f"the token in {self.path} is not text") from None
            except OSError as error:
                raise CredentialError(f"the token in {self.path} cannot be read: {error.strerror}") from error
            return _checked(text, f"the token in {self.path}")
        return _checked(os.environ.get(self.variable, ""), f"the token in {self.variable}")


class RefreshingToken:
    """A token that is read at intervals and after a 401. While it cannot be read, the last one is used."""

    def __init__(self, credential: Credential, clock: Callable[[], float] = time.monotonic) -> None:
        self._credential, self._clock, self._due = credential, clock, 0.0
        self._read()

    def current(self) -> str | None:
        """Return the token to send, reading it again if it is due."""
        if self._clock() >= self._due:
            self._due = self._clock() + REFRESH_INTERVAL_S  # also if this fails: one attempt per interval
            with contextlib.suppress(CredentialError):
                self._read()
        return self._cached[0]

    def reload_differs(self, rejected: str | None) -> bool:
        """Read the token again, and return whether it differs from the rejected one."""
        self._read()
        return self._cached[0] != rejected

    def _read(self) -> None:
        # In a list, so that tools that print the attributes of an object do not print the token.
        self._cached = [self._credential.read()]
        self._due = self._clock() + REFRESH_INTERVAL_S


def _checked(given: str, what: str) -> str | None:
    token = given.strip()
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        raise CredentialError(f"{what} has characters other than visible ASCII ones")
    return token or None
