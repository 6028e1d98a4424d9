"""Where the bearer token comes from: an argument, a file, or the environment. Never shown, never logged."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

TOKEN_VARIABLE = "TABLESIDE_TOKEN"  # noqa: S105 - the name of a variable, not a secret


class CredentialError(ValueError):
    """A token that cannot be read, or that no header can carry; the message has nothing of it."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A reference to a bearer token, resolved where the request is made.

    A file is read again when the service answers 401, so that a rotated token needs no new job.
    """

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
