"""Decodes the input of forms: keys, expiries, and form bodies."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from ...core import InvalidOperation, Key, KeySchema, MalformedRequest, Part, PartType, TooLarge, part_from_text
from ...core.transitions import checked_ttl_s
from ..wire import request_headers
from ..wire.problems import UnsupportedMediaType

MEDIA_TYPE = "application/x-www-form-urlencoded"

FORM_BYTES_MAX = 1 << 20
FIELDS_MAX = 20


def key(schema: KeySchema, given: Mapping[str, str]) -> Key | None:
    """Return the key from the parameters k0, k1 and so on; None if there are none."""
    texts = [given.get(f"k{index}") for index in range(len(schema.fields))]
    if not any(text is not None for text in texts):
        return None
    parts = tuple(part(text or "", field.type) for text, field in zip(texts, schema.fields, strict=True))
    return parts if schema.composite else parts[0]


def part(text: str, kind: PartType) -> Part:
    """Parse one part of a key. A percent sign in the text is not an escape."""
    try:
        return part_from_text(text.strip().encode() if kind == "integer" else text.replace("%", "%25").encode(), kind)
    except UnicodeEncodeError:
        raise InvalidOperation("a key contains a lone surrogate") from None


def key_query(key: Key) -> str:
    """Return a key as a query string, which `key` can decode."""
    parts = key if isinstance(key, tuple) else (key,)
    return urlencode({f"k{index}": part for index, part in enumerate(parts)})


def ttl_s(text: str) -> float | None:
    """Return the seconds to live; None for the table's default. Raise InvalidOperation if the text is invalid."""
    try:
        return checked_ttl_s(request_headers.number(text.strip(), "seconds to live")) if text.strip() else None
    except MalformedRequest as error:
        raise InvalidOperation(error.detail) from None


async def form(request: Request) -> dict[str, str]:
    """Return the fields of the request's form. Raise TooLarge, UnsupportedMediaType or MalformedRequest."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise UnsupportedMediaType(f"a form must have the media type {MEDIA_TYPE}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise TooLarge(f"a form may have at most {FORM_BYTES_MAX} bytes; use the HTTP interface for larger records")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX))
    except ValueError:
        raise MalformedRequest("the form cannot be read") from None
