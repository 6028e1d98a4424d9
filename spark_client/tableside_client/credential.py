"""Where the bearer token comes from: an argument, a file, or the environment. Never shown, never logged."""

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TOKEN_VARIABLE = "TABLESIDE_TOKEN"  # noqa: S105 - the name of a variable, not a secret
READ_AGAIN_S = 60.0
"""How old a token that is sent may be: files are renewed minutes before what they held is refused."""


class CredentialError(ValueError):
    """A token that cannot be read, or that no header can carry; the message has nothing of it."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A reference to a bearer token, resolved where the request is made."""

    literal: str | None = field(default=None, repr=False)
    path: str | None = None
    variable: str = TOKEN_VARIABLE

    def read(self) -> str | None:
        """The token as it is now, or None where none is configured.

        One that no header can carry is refused here: an HTTP library's own refusal would quote it.
        """
        if self.literal is not None:
            return _checked(self.literal, "the token")
        if self.path is not None:
            return _checked(_text(self.path), f"the token in {self.path}")
        return _checked(os.environ.get(self.variable, ""), f"the token in {self.variable}")


class HeldToken:
    """The token of a client that lives long: read at first, every `READ_AGAIN_S`, and when it is refused.

    Between two readings it is not looked at, so that a file is not read for each request. While a file cannot be
    read, the token that it held is sent on, until the service refuses it.
    """

    def __init__(self, credential: Credential, clock: Callable[[], float] = time.monotonic) -> None:
        self._credential = credential
        self._clock = clock
        self._due = 0.0
        # In a list, so that what shows the members of an object does not show the token as one of them.
        self._held: list[str | None] = []
        self._read()

    def current(self) -> str | None:
        """The token to send now."""
        if self._clock() >= self._due:
            self._due = self._clock() + READ_AGAIN_S  # even if this fails: one look a minute
            with contextlib.suppress(CredentialError):
                self._read()
        return self._held[0]

    def differs_from(self, refused: str | None) -> bool:
        """Read anew: whether there is now another token than the one refused, which another thread may have read."""
        self._read()
        return self._held[0] != refused

    def _read(self) -> None:
        self._held = [self._credential.read()]
        self._due = self._clock() + READ_AGAIN_S


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:  # It would hold what was read.
        raise CredentialError(f"the token in {path} is no text") from None
    except OSError as error:
        raise CredentialError(f"the token in {path} cannot be read: {error.strerror}") from error


def _checked(given: str, what: str) -> str | None:
    token = given.strip()
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        raise CredentialError(f"{what} has characters other than visible ASCII ones")
    return token or None
