"""The results of operations, and the conversion of values to the type of a table."""

import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Generic, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from tableside_client.errors import TablesideError
from tableside_client.http1 import Reply

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Record(Generic[V]):
    """A record.

    Attributes:
        key: A string or an integer, or a tuple of them for a composite key.
        value: The JSON object, or the object of the table's type.
        etag: The version of the value, for `if_match`, or None if the store has no versions.
        expires_at: The time of expiry (RFC 3339), or None if the record does not expire.
        partition: In a scan of a partitioned table, the index of the record's partition, otherwise None.
    """

    key: Any
    value: V
    etag: str | None
    expires_at: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    Attributes:
        etag: The version of the new value, or None.
        created: True if a put with `if_absent`, an update's default or an ordered update created the record. Always
            False for a plain put, which does not report whether there was a record.
        replayed: True if the write had already been applied with the caller's token. It changed nothing now.
        value: The new value if it was requested, else None.
        superseded: True if writes with higher orders have already written all that this write would have changed.
    """

    etag: str | None
    created: bool
    replayed: bool
    value: dict[str, Any] | None = None
    superseded: bool = False

    @classmethod
    def from_response(cls, response: Reply) -> Self:
        """Read the response to a PUT, PATCH or DELETE."""
        return cls(
            etag_of(response),
            response.status_code == 201,
            response.headers.get("tableside-replayed") == "true",
            response.json() if response.content else None,
            response.headers.get("tableside-superseded") == "true",
        )

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> Self:
        """Read one result of a batch in JSON."""
        return cls(
            result.get("etag"),
            result["status"] == 201,
            bool(result.get("replayed")),
            result.get("value"),
            bool(result.get("superseded")),
        )


@dataclass(frozen=True, slots=True)
class Outcome(Generic[V]):
    """The outcome of one operation of a batch.

    Attributes:
        status: The HTTP status that the single request would have had.
        value: The value of a get, or of a write that returns it, otherwise None.
        etag: The version of the value, or None.
        expires_at: The time of expiry (RFC 3339), or None.
        replayed: True if a write had already been applied with the caller's token.
        error: Why the operation failed, or None.
        superseded: True if writes with higher orders have already written all that the write would have changed.
    """

    status: int
    value: V | None = None
    etag: str | None = None
    expires_at: str | None = None
    replayed: bool = False
    error: TablesideError | None = None
    superseded: bool = False

    @property
    def ok(self) -> bool:
        """Whether the operation succeeded."""
        return self.error is None


def etag_of(response: Reply) -> str | None:
    """Return the etag of a response without its quotes."""
    etag: str | None = response.headers.get("etag")
    return None if etag is None else etag.removeprefix("W/").strip('"')


def conversions(kind: type[V]) -> tuple[Callable[[dict[str, Any]], V], Callable[[Any], Mapping[str, Any]]]:
    """Return the conversions of JSON objects to values of a type, and back.

    Raises `TypeError` if the type is none of `dict`, a dataclass, a msgspec struct and a pydantic model. Mappings are
    not converted. The conversions raise the errors of the type's library.
    """
    decode, encode = _conversions(kind)
    return decode, lambda value: value if isinstance(value, Mapping) else encode(value)


def _conversions(kind: type[Any]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if kind is dict:
        return lambda document: document, _no_object
    if (msgspec := sys.modules.get("msgspec")) is not None and issubclass(kind, msgspec.Struct):
        return lambda document: msgspec.convert(document, kind), msgspec.to_builtins
    if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):
        return kind.model_validate, lambda value: value.model_dump(mode="json")
    if is_dataclass(kind):
        return lambda document: _dataclass(kind, document), asdict
    raise TypeError(f"{kind!r} is not a dict, a dataclass, a msgspec struct or a pydantic model")


def _no_object(value: Any) -> Any:
    raise TypeError(f"a value must be a mapping, not {type(value).__name__}")


def _dataclass(kind: type[Any], document: Mapping[str, Any]) -> Any:
    """Create a dataclass. Members without a field are ignored, and fields with a default may be absent."""
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind) if field.init and field.name in document]
    return kind(**{name: _convert(hints[name], document[name]) for name in known})


def _convert(hint: Any, value: Any) -> Any:
    """Convert nested dataclasses, in lists, in dictionaries and in optional fields. Other values stay unchanged."""
    arguments = get_args(hint)
    if is_dataclass(hint) and isinstance(value, Mapping):
        return _dataclass(hint, value)  # type: ignore[arg-type]  # a class, not an instance
    if get_origin(hint) in (Union, types.UnionType) and value is not None:
        chosen = [argument for argument in arguments if is_dataclass(argument)]
        return _convert(chosen[0], value) if len(chosen) == 1 else value
    if get_origin(hint) is list and isinstance(value, list):
        return [_convert(arguments[0], element) for element in value]
    if get_origin(hint) is dict and isinstance(value, dict):
        return {name: _convert(arguments[1], member) for name, member in value.items()}
    return value
