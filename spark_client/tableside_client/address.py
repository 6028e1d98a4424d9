"""The address of the service."""

import os
from urllib.parse import urlsplit

URL_VARIABLE = "TABLESIDE_URL"


def service_url(given: str) -> str:
    """Return `given`, or the value of `TABLESIDE_URL`. Raises `ValueError` if it is not a URL or has a password."""
    url = (given or os.environ.get(URL_VARIABLE, "")).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(_not_a_url(url))
    if parts.username or parts.password:
        raise ValueError("url must not contain a user or a password, which plans and logs would show: use a token")
    return url


def _not_a_url(text: str) -> str:
    if not text:
        return f"url must be an http:// or https:// address. If it is omitted, {URL_VARIABLE} must be set"
    if "@" in text:  # it may have a password
        return "url must be an http:// or https:// address without a user or a password"
    host = "" if text.endswith(":") else text.rpartition("://")[2]
    return f"url must be an http:// or https:// address{f', such as http://{host}' if host else ''}, not {text!r}"
