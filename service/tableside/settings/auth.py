"""What an operator may set of who asks: tokens, and what each of them may do; and whose signed tokens are taken."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr
from pydantic_core import PydanticCustomError

from .issuers import Issuers
from .patterns import TablePatterns

TOKENS_MAX = 10_000
"""How many tokens the configuration has."""


def _checked_digest(digest: SecretStr) -> SecretStr:
    if not re.fullmatch("[0-9a-fA-F]{64}", text := digest.get_secret_value()):
        raise PydanticCustomError("digest", "is the SHA-256 digest of a token, in 64 hexadecimal digits")
    if text.lower() == _DIGEST_OF_NOTHING:
        raise PydanticCustomError("digest", "is the digest of an empty token")
    return digest


_DIGEST_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class TokenSettings(BaseModel, frozen=True, extra="forbid"):
    """One bearer token, known by its digest only: whose it is, and which tables it may read and write.

    `admin` is about the service itself, and gives no right on a table.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:/-]{0,127}$")
    sha256: Annotated[SecretStr, AfterValidator(_checked_digest)]
    read: TablePatterns = ()
    write: TablePatterns = ()
    admin: bool = False


Tokens = Annotated[tuple[TokenSettings, ...], Field(max_length=TOKENS_MAX)]


class AuthSettings(BaseModel, frozen=True, extra="forbid"):
    """Who may ask. `tokens` are those of the file too, once it is read; `metrics` says who may see /metrics."""

    tokens: Tokens = ()
    tokens_file: str | None = None
    issuers: Issuers = ()
    metrics: Literal["open", "admin"] = "open"
