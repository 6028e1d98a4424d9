"""Checks URLs in settings, and shortens them for logs."""

from urllib.parse import urlsplit


def checked_url(url: str) -> str:
    """Return a URL with a host. Raise ValueError if it has none, or a port that is not a number from 1 to 65535."""
    check_port(url)
    if not urlsplit(url).hostname:
        raise ValueError("has no host")
    return url


def check_port(url: str) -> None:
    """Raise ValueError if a URL has a port that is not a number from 1 to 65535."""
    try:
        valid = urlsplit(url).port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("has a port that is not a number from 1 to 65535, or an invalid host")


def url_place(url: str) -> str:
    """Return the host, port and path of a URL, without user, password and parameters.

    If the password is not encoded, so that it cannot be separated from the rest, return only this sentence.
    """
    parts = urlsplit(url)
    if url.count("@") != parts.netloc.count("@"):
        return "an address with an unencoded password"
    return parts.netloc.rpartition("@")[2] + parts.path
