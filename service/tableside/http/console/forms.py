"""Decodes the input of forms: addresses of records, expiries, and form bodies."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request

from ...core import InvalidOperation, Key, MalformedRequest, Part, PartType, TableSpec, TooLarge, part_from_text
from ...core.transitions import checked_ttl_s
from ..wire import request_headers
from ..wire.partitions import choose_partitions, parse_query
from ..wire.problems import UnsupportedMediaType

MEDIA_TYPE = "application/x-www-form-urlencoded"

FORM_BYTES_MAX = 1 << 20
FIELDS_MAX = 20


class Address(msgspec.Struct, frozen=True):
    """The location of a record: its key, and its partition in a partitioned table. None is the partition of the key."""

    key: Key
    partition: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of the key."""
        return tuple(map(str, self._parts))

    @property
    def query(self) -> str:
        """Return the address as a query string, which `address` can decode."""
        parts = {f"k{index}": part for index, part in enumerate(self._parts)}
        return urlencode(parts if self.partition is None else {**parts, "partitions": self.partition})

    @property
    def partitions(self) -> tuple[int, ...] | None:
        """Return the partitions of an operation on the record."""
        return None if self.partition is None else (self.partition,)

    @property
    def _parts(self) -> tuple[Part, ...]:
        return self.key if isinstance(self.key, tuple) else (self.key,)


def address(spec: TableSpec, given: Mapping[str, str]) -> Address:
    """Return the address from the parameters k0, k1 and so on, and `partitions`. Raise InvalidOperation if invalid."""
    texts = [given.get(f"k{index}") for index in range(len(spec.key.fields))]
    if not any(text is not None for text in texts):
        raise InvalidOperation("the request has no key")
    parts = tuple(part(text or "", field.type) for text, field in zip(texts, spec.key.fields, strict=True))
    key = parts if spec.key.composite else parts[0]
    if not (text := given.get("partitions")):
        return Address(key)
    partitions = choose_partitions(spec, parse_query(text))
    if partitions is None or len(partitions) != 1:
        raise InvalidOperation("partitions must be the index of one partition")
    return Address(key, partitions[0])


def part(text: str, kind: PartType) -> Part:
    """Parse one part of a key. A percent sign in the text is not an escape."""
    try:
        return part_from_text(text.strip().encode() if kind == "integer" else text.replace("%", "%25").encode(), kind)
    except UnicodeEncodeError:
        raise InvalidOperation("a key contains a lone surrogate") from None


def ttl_s(text: str) -> float | None:
    """Return the seconds to live, or None for the table's default. Raise InvalidOperation if the text is invalid."""
    try:
        return checked_ttl_s(request_headers.number(text.strip(), "TTL")) if text.strip() else None
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
