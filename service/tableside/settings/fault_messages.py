"""Messages for the faults that pydantic finds, in the words of the configuration file."""

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, RootModel

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MAPPINGS = {"dict_type", "mapping_type", "model_type", "model_attributes_type"}
_LISTS = {"tuple_type", "list_type"}
_BOOLEANS = {"bool_type", "bool_parsing"}

_EXAMPLES = {"stores": "{local: {kind: rocksdb}}", "tables": "{people: {store: local}}"}

_SIMILARITY_MIN = 0.55
"""How similar a known option must be to be suggested. `rate` is this similar to `rate_per_s`."""


def fault_message(
    fault: "ErrorDetails", path: str, model: type[BaseModel], other: type[BaseModel] | None = None
) -> str:
    """Return the message for a fault. `path` is its place in the file, `model` and `other` have the known options."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return "is not a known option" + _suggestion(fault["loc"], model, other)
    if kind in _MAPPINGS:
        return "must be a mapping" + (f", such as {_EXAMPLES[path]}" if path in _EXAMPLES else "")
    if kind in _LISTS:
        return "must be a list"
    if kind in _BOOLEANS:
        return "must be true or false"
    if kind == "too_long":
        return f"may have at most {context['max_length']} entries"
    if kind == "too_short":
        return f"needs at least {context['min_length']} {'entry' if context['min_length'] == 1 else 'entries'}"
    if kind == "string_pattern_mismatch" and context["pattern"] == "^https?://":
        return "must begin with http:// or https://"
    text = fault["msg"].removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _suggestion(place: tuple[int | str, ...], model: type[BaseModel], other: type[BaseModel] | None) -> str:
    *above, name = place
    models = [*_models(model), *_models(other)]
    for part in above:
        if isinstance(part, str):
            fields = [each.model_fields[part] for each in models if part in each.model_fields]
            models = [nested for field in fields for nested in _models(field.annotation)]
    known = [option for each in models for option in each.model_fields]
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=_SIMILARITY_MIN)
    return f": did you mean {near[0]}?" if near else ""


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names, such as the members of a union."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        for part in get_args(annotation):
            yield from _models(part)
    elif issubclass(annotation, RootModel):
        yield from _models(annotation.model_fields["root"].annotation)
    else:
        yield annotation
