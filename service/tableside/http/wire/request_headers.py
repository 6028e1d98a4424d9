"""Parses headers and query parameters."""

import re
from collections.abc import Collection, Mapping

import msgspec
from starlette.requests import Request

from ...core import InvalidOperation, MalformedRequest
from ...core.operations import ANY_ETAG, Token
from ...core.transitions import checked_ttl_s
from . import operation_members
from .preference_list import parse_preferences, unquoted
from .problems import NotAcceptable, UnsupportedMediaType
from .projections import Fields

_ETAGS = re.compile(r'\s*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')
_QUOTED = re.compile(r'"(?:[\x20\x21\x23-\x5b\x5d-\xff]|\\["\\])*"')
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")

_BODY_CODINGS = frozenset({"content-encoding", "transfer-encoding"})
_SCOPE_KEY = "tableside.headers"


class Preferences(msgspec.Struct, frozen=True):
    """The preferences in `Prefer`: whether to return the value after a write, and the deadline in seconds."""

    representation: bool = False
    wait_s: float | None = None


def header(request: Request, name: str) -> str | None:
    """Return a header by its name in lower case, repeated headers joined by commas, or None if it is absent."""
    return _headers(request).get(name)


def _headers(request: Request) -> dict[str, str]:
    """Return the headers by name. Starlette iterates over all at each look-up. This iterates once per request."""
    by_name: dict[str, str] | None = request.scope.get(_SCOPE_KEY)
    if by_name is None:
        by_name = request.scope[_SCOPE_KEY] = {}
        for raw_name, raw in request.scope["headers"]:
            one, text = raw_name.decode("latin-1"), raw.decode("latin-1")
            by_name[one] = f"{by_name[one]}, {text}" if one in by_name else text
    return by_name


def _single(request: Request, name: str) -> str | None:
    """Return a header that is not a list, by its name in lower case. Raise MalformedRequest if it occurs twice."""
    text = header(request, name)
    if text is not None and sum(one == name.encode() for one, _ in request.scope["headers"]) > 1:
        raise MalformedRequest(f"{name.title()} occurs twice")
    return text


def preferences(request: Request) -> Preferences:
    """Return the preferences in `Prefer`. Unknown ones are ignored, and of a repeated one the first counts."""
    if (text := header(request, "prefer")) is None:
        return NO_PREFERENCES
    found = parse_preferences(text)
    wait_s = number(found["wait"], "Prefer: wait") if "wait" in found else None
    if wait_s is not None and wait_s < 0:
        raise MalformedRequest("Prefer: wait must not be negative")
    return Preferences(found.get("return", "").lower() == "representation", wait_s)


NO_PREFERENCES = Preferences()


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a GET.

    The members to return, the texts of `partitions` and `If-None-Match`, the age of a cached record, and the deadline.
    """

    fields: Fields
    partitions: str | None
    if_none_match: str | None
    max_age_s: float | None
    wait_s: float | None


def read_options(request: Request, media: str) -> ReadOptions:
    """Parse the query and the headers of a GET. Raise NotAcceptable if the client does not accept the media type."""
    names = [name for name, _ in request.scope["headers"]]
    if not request.scope["query_string"] and _READ_HEADERS.isdisjoint(names):
        return _NO_OPTIONS
    query = query_parameters(request, ("fields", "partitions"))
    check_accepts(request, media)
    return ReadOptions(
        fields=fields(query.get("fields")),
        partitions=query.get("partitions"),
        if_none_match=header(request, "if-none-match"),
        max_age_s=max_age_s(request),
        wait_s=preferences(request).wait_s,
    )


_READ_HEADERS = frozenset({b"accept", b"cache-control", b"if-none-match", b"prefer"})
_NO_OPTIONS = ReadOptions(None, None, None, None, None)


def has_write_options(request: Request) -> bool:
    """Return whether a write has a query or a header that changes it."""
    names = [name for name, _ in request.scope["headers"]]
    return bool(request.scope["query_string"]) or not _WRITE_HEADERS.isdisjoint(names)


_WRITE_HEADERS = frozenset({b"idempotency-key", b"if-match", b"if-none-match", b"prefer", b"tableside-token"})


def max_age_s(request: Request) -> float | None:
    """Return the maximum age of a cached record by `Cache-Control` (RFC 9111).

    0 bypasses the cache, and None accepts every cached record. Directives other than `no-cache` and `max-age` are
    ignored.
    """
    if (text := header(request, "cache-control")) is None:
        return None
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


def if_match(request: Request) -> tuple[str, ...] | None:
    """Return the etags of `If-Match`. A weak etag or a quoted star stays unchanged and matches no version."""
    text = header(request, "if-match")
    if text is None:
        return None
    if text.strip() == "*":
        return (ANY_ETAG,)
    return tuple(etag if etag[0] == "W" or etag == '"*"' else etag[1:-1] for etag in _etags(text, "If-Match"))


def create_only(request: Request) -> bool:
    """Return whether `If-None-Match: *` restricts a write to creating the record."""
    text = header(request, "if-none-match")
    if text is not None and text.strip() != "*":
        raise InvalidOperation("If-None-Match on a write must be *")
    return text is not None


def matches_etag(text: str, etag: str) -> bool:
    """Return whether the text of `If-None-Match` contains the etag, so that the client already has the record."""
    return text.strip() == "*" or etag in [one.removeprefix("W/")[1:-1] for one in _etags(text, "If-None-Match")]


def token(request: Request) -> Token | None:
    """Return the token of `Tableside-Token: <writer>/<sequence>`, or of `Idempotency-Key`."""
    text, idempotency_key = _single(request, "tableside-token"), _single(request, "idempotency-key")
    if idempotency_key is not None:
        if text is not None:
            raise MalformedRequest("Idempotency-Key and Tableside-Token cannot be combined")
        return _single_use_token(idempotency_key)
    if text is None:
        return None
    writer, slash, sequence = text.rpartition("/")
    if not slash or not re.fullmatch("[0-9]{1,19}", sequence):
        raise InvalidOperation("Tableside-Token must be <writer>/<sequence>")
    return operation_members.token(_utf8(writer), int(sequence))


def refuse_tokens(request: Request) -> None:
    """Raise MalformedRequest if a batch has a token in a header. Ignoring it could apply the batch twice."""
    for name in ("Idempotency-Key", "Tableside-Token"):
        if header(request, name.lower()) is not None:
            raise MalformedRequest(f"{name} does not apply to a batch: give each operation a token")


def _single_use_token(text: str) -> Token:
    """Return the token of an `Idempotency-Key`: a string in quotes, as its Internet-Draft has it, or bare text."""
    if text.startswith('"'):
        if not _QUOTED.fullmatch(text):
            raise InvalidOperation("an Idempotency-Key that begins with a quote must be one quoted string")
        text = unquoted(text)
    try:
        return operation_members.token(_utf8(text), 1)
    except InvalidOperation:
        reason = f"Idempotency-Key must have 1 to {operation_members.WRITER_CHARACTERS_MAX} characters"
        raise InvalidOperation(reason) from None


def media_type(request: Request, known: Collection[str], default: str | None = None) -> str:
    """Return the media type of the body, one of `known`. Raise UnsupportedMediaType if it is another."""
    headers = _headers(request)
    if _BODY_CODINGS.isdisjoint(headers) and (plain := headers.get("content-type", "")) in known:
        return plain
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise UnsupportedMediaType("a body with a Content-Encoding is not supported")
    if headers.get("transfer-encoding", "chunked").lower() not in ("", "chunked"):
        raise UnsupportedMediaType("chunked is the only supported transfer coding")
    essence, _, parameters = (headers.get("content-type") or default or "").partition(";")
    charset = parameters and re.search(r"charset\s*=\s*\"?([^\s\";]+)", parameters, re.IGNORECASE)
    if essence.strip().lower() not in known or (charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii")):
        raise UnsupportedMediaType(f"the body must be one of: {', '.join(sorted(known))}")
    return essence.strip().lower()


def check_accepts(request: Request, media: str) -> None:
    """Raise NotAcceptable if the client does not accept the media type. An empty `Accept` accepts every type."""
    text = header(request, "accept")
    if text and text != "*/*" and not _quality(text, media):
        raise NotAcceptable(f"the response is {media}")


def preferred_media_type(request: Request, medias: Collection[str]) -> str:
    """Return the client's preferred media type, the first of equals. Raise NotAcceptable if it accepts none of them."""
    text = header(request, "accept")
    if not text:
        return next(iter(medias))
    best = max(medias, key=lambda media: _quality(text, media))
    if not _quality(text, best):
        raise NotAcceptable(f"the response is one of: {', '.join(medias)}")
    return best


def query_parameters(request: Request, known: Collection[str]) -> Mapping[str, str]:
    """Return the query parameters. Raise MalformedRequest if one is unknown or occurs twice."""
    if not request.scope["query_string"]:
        return {}
    parameters: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name not in known or name in parameters:
            reason = "occurs twice" if name in parameters else "is unknown"
            raise MalformedRequest(f"a query parameter {operation_members.display_name(name)} {reason}")
        parameters[name] = text
    return parameters


def fields(text: str | None) -> Fields:
    """Return the names in `?fields=`, which are separated by commas, None for all."""
    return None if text is None else operation_members.fields([name for name in text.split(",") if name])


def ttl_s(text: str | None) -> float | None:
    """Parse `?ttl_s=`. Raise InvalidOperation if it is invalid."""
    if text is None:
        return None
    try:
        return checked_ttl_s(number(text, "ttl_s"))
    except MalformedRequest as error:
        raise InvalidOperation(error.detail) from None


def number(text: str, what: str) -> float:
    """Parse a decimal number. Raise MalformedRequest if it is invalid."""
    if not _NUMBER.fullmatch(text):
        raise MalformedRequest(f"{what} must be a number")
    return float(text)


def integer(text: str, what: str, lowest: int, highest: int) -> int:
    """Parse a decimal integer and reduce it to `highest`. Raise MalformedRequest if it is invalid or below `lowest`."""
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) < lowest:
        raise MalformedRequest(f"{what} must be an integer, at least {lowest}")
    return min(int(text), highest)


def _etags(text: str, header: str) -> list[str]:
    position = 0
    etags: list[str] = []
    while position < len(text) or not etags:
        match = _ETAGS.match(text, position)
        if match is None:
            raise MalformedRequest(f'{header} must be * or quoted etags, as in "a", "b"')
        etags.append(match[1])
        position = match.end()
    return etags


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
