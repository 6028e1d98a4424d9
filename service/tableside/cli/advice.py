"""What a user can do about an error of the client, as the end of its message."""

import httpx

from tableside_client import AccessDenied
from tableside_client.credential import TOKEN_VARIABLE, Credential
from tableside_client.errors import UNREACHABLE, Unavailable


def advice(error: Exception, token_file: str | None) -> str:
    """Return the text to add to the message of an error, empty if there is no advice."""
    if isinstance(error, Unavailable) and error.code == UNREACHABLE and isinstance(error.__cause__, httpx.ConnectError):
        return "; start the service with tableside serve, or set --url or TABLESIDE_URL"
    if isinstance(error, AccessDenied) and error.code == "unauthenticated":
        return f"; {_token_advice(token_file)}"
    return ""


def _token_advice(token_file: str | None) -> str:
    if Credential(path=token_file).read() is None:
        return f"no token was sent: set --token-file or {TOKEN_VARIABLE}"
    return f"the token in {token_file or TOKEN_VARIABLE} was rejected"
