"""The address of the service."""

import os
from urllib.parse import urlsplit

URL_VARIABLE = "TABLESIDE_URL"


def service_url(given: str) -> str:
    """Return `given`, or the value of `TABLESIDE_URL`. Raises `ValueError` if it is not a URL or has a password."""
    url = (given or os.environ.get(URL_VARIABLE, "")).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"url must be an http:// or https:// address. If it is omitted, {URL_VARIABLE} must be set")
    if parts.username or parts.password:
        raise ValueError("url must not contain a user or a password, which plans and logs would show: use a token")
    return url
