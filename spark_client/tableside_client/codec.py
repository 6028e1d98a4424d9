"""Values as Python objects: dictionaries, dataclasses, msgspec structs or pydantic models."""

import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

V = TypeVar("V")


class Codec(Generic[V]):
    """Converts between the JSON objects of a table and values of one type.

    Raises `TypeError` if the type is none of `dict`, a dataclass, a msgspec struct and a pydantic model.
    """

    def __init__(self, kind: type[V]) -> None:
        self._to_value: Callable[[dict[str, Any]], V]
        self._to_value, self._to_object = _conversions(kind)

    def decode(self, document: dict[str, Any]) -> V:
        """Return the value of a JSON object. Raises the error of the type's library if the object does not fit."""
        return self._to_value(document)

    def encode(self, value: V | Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the JSON object of a value. A mapping is returned unchanged. Raises `TypeError` for other types."""
        return value if isinstance(value, Mapping) else self._to_object(value)


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
