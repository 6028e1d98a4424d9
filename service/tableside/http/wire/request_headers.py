"""Parses the texts of headers and query parameters. `endpoints.parameters` declares which requests have them."""

import re

import msgspec

from ...core import InvalidOperation, MalformedRequest
from ...core.operations import ANY_ETAG, WRITER_CHARACTERS_MAX, Token, checked_token
from ...core.transitions import checked_ttl_s
from .problems import NotAcceptable
from .projections import Fields, fields_of

INTEGER_MAX = 10**18 - 1
"""The largest integer in a query."""

_ETAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_ETAGS = re.compile(rf"(?:\s*{_ETAG}\s*(?:,|$))++")
_QUOTED = re.compile(r'"(?:[\x20\x21\x23-\x5b\x5d-\xff]|\\["\\])*"')
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")
_QUOTED_VALUE = r'"(?:[^"\\]|\\.)*+"'
_PREFERENCE = re.compile(
    r'([^\s,;="]+)\s*'  # its name
    rf'(?:=\s*({_QUOTED_VALUE}|[^,;"]*))?'  # its value
    rf'(?:[^,"]|{_QUOTED_VALUE}?)*+(?:,|$)'  # its parameters, up to a comma outside of quotes
)


class Preferences(msgspec.Struct, frozen=True):
    """The preferences in `Prefer`: whether to return the value after a write, and the deadline in seconds."""

    representation: bool = False
    wait_s: float | None = None


def parse_preferences(text: str) -> Preferences:
    """Parse `Prefer` (RFC 7240). Unknown preferences are ignored, and of a repeated one the first counts.

    The value of a preference may be in quotes. Its parameters are ignored.
    """
    found: dict[str, str] = {}
    for name, value in _PREFERENCE.findall(text):
        found.setdefault(name.lower(), _unquoted(value.rstrip()))
    if (wait := found.get("wait")) is not None and not _NUMBER.fullmatch(wait):
        raise MalformedRequest("Prefer: wait must be a number")
    wait_s = None if wait is None else float(wait)
    if wait_s is not None and wait_s < 0:
        raise MalformedRequest("Prefer: wait must not be negative")
    return Preferences(found.get("return", "").lower() == "representation", wait_s)


def parse_cache_control(text: str) -> float | None:
    """Return the maximum age of a cached record by `Cache-Control` (RFC 9111), in seconds.

    0 bypasses the cache, and None accepts every cached record. Directives other than `no-cache` and `max-age` are
    ignored.
    """
    ages = []
    for directive in text.split(","):
        name, _, value = directive.partition("=")
        name, value = name.strip().lower(), value.strip().strip('"')
        if name == "no-cache":
            ages.append(0.0)
        elif name == "max-age":
            if not re.fullmatch("[0-9]{1,18}", value):
                raise MalformedRequest("Cache-Control: max-age must be a number of whole seconds")
            ages.append(float(value))
    return min(ages, default=None)


def parse_if_match(text: str) -> tuple[str, ...]:
    """Return the etags of `If-Match`. A weak etag or a quoted star stays unchanged and matches no version."""
    if text.strip() == "*":
        return (ANY_ETAG,)
    return tuple(etag if etag[0] == "W" or etag == '"*"' else etag[1:-1] for etag in _etags(text, "If-Match"))


def parse_create_only(text: str) -> bool:
    """Return true for `If-None-Match: *`, which restricts a write to creating the record."""
    if text.strip() != "*":
        raise InvalidOperation("If-None-Match on a write must be *")
    return True


def matches_etag(text: str, etag: str) -> bool:
    """Return whether the text of `If-None-Match` contains the etag, so that the client already has the record."""
    return text.strip() == "*" or etag in [one.removeprefix("W/")[1:-1] for one in _etags(text, "If-None-Match")]


def parse_token(text: str) -> Token:
    """Return the token of `Tableside-Token: <writer>/<sequence>`."""
    writer, slash, sequence = text.rpartition("/")
    if not slash or not re.fullmatch("[0-9]{1,19}", sequence):
        raise InvalidOperation("Tableside-Token must be <writer>/<sequence>")
    return checked_token(_utf8(writer), int(sequence))


def parse_idempotency_key(text: str) -> Token:
    """Return the token of an `Idempotency-Key`: a string in quotes, as its Internet-Draft has it, or bare text."""
    if text.startswith('"'):
        if not _QUOTED.fullmatch(text):
            raise InvalidOperation("an Idempotency-Key that begins with a quote must be one quoted string")
        text = _unquoted(text)
    try:
        return checked_token(_utf8(text), 1)
    except InvalidOperation:
        raise InvalidOperation(f"Idempotency-Key must have 1 to {WRITER_CHARACTERS_MAX} characters") from None


def parse_fields(text: str) -> Fields:
    """Return the names in `?fields=`, which are separated by commas."""
    return fields_of([name for name in text.split(",") if name])


def parse_ttl_s(text: str) -> float | None:
    """Parse `?ttl_s=`. Raise InvalidOperation if it is invalid."""
    if not _NUMBER.fullmatch(text):
        raise InvalidOperation("ttl_s must be a number")
    return checked_ttl_s(float(text))


def parse_boolean(text: str, what: str) -> bool:
    """Parse `true` or `false`. Raise MalformedRequest for anything else."""
    if text not in ("true", "false"):
        raise MalformedRequest(f"{what} must be true or false")
    return text == "true"


def parse_integer(text: str, what: str, highest: int) -> int:
    """Parse a decimal integer and reduce it to `highest`. Raise MalformedRequest if it is invalid or below 1."""
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) < 1:
        raise MalformedRequest(f"{what} must be an integer, at least 1")
    return min(int(text), highest)


def check_accepts(accept: str | None, media: str) -> None:
    """Raise NotAcceptable if `Accept` excludes the media type. An empty one accepts every type."""
    if accept and accept != "*/*" and not _quality(accept, media):
        raise NotAcceptable(f"the response is {media}")


def preferred_media_type(accept: str | None, medias: tuple[str, ...]) -> str:
    """Return the media type that `Accept` prefers, the first of equals. Raise NotAcceptable if it has none of them."""
    if not accept:
        return medias[0]
    best = max(medias, key=lambda media: _quality(accept, media))
    if not _quality(accept, best):
        raise NotAcceptable(f"the response is one of: {', '.join(medias)}")
    return best


def _unquoted(text: str) -> str:
    """Return the content of a quoted string, or the text if it is not quoted."""
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if quoted else text


def _etags(text: str, header: str) -> list[str]:
    if not _ETAGS.fullmatch(text):
        raise MalformedRequest(f'{header} must be * or quoted etags, as in "a", "b"')
    return re.findall(_ETAG, text)


def _quality(accept: str, media: str) -> float:
    """Return the quality of a media type in `Accept`, from 0 to 1. The most specific matching range decides."""
    found = {}
    for one in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in one.split(";"))
        if kind in (media, f"{media.partition('/')[0]}/*", "*/*"):
            weights = [parameter[2:] for parameter in parameters if parameter.startswith("q=")]
            found[kind] = float(weights[0]) if weights and _NUMBER.fullmatch(weights[0]) else 1.0
    return found.get(media, found.get(f"{media.partition('/')[0]}/*", found.get("*/*", 0.0)))


def _utf8(text: str) -> str:
    try:
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return text
