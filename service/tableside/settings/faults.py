"""Faults in a configuration, in the words of the file. Validation collects them, so that one run reports all."""

import difflib
from collections.abc import Iterable, Iterator, Set as AbstractSet
from typing import TYPE_CHECKING, TypeVar, get_args

import msgspec
from pydantic import BaseModel, RootModel, ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
"""The pattern for names of stores and tables."""

_NO_MAPPING = "must be a mapping"

_MESSAGES = {
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), _NO_MAPPING),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "too_long": "may have at most {max_length} entries",
}
"""Messages by the type of pydantic's errors. Other errors have pydantic's own message."""

_EXAMPLES = {"stores": ", such as {local: {kind: rocksdb}}", "tables": ", such as {people: {store: local}}"}

_SIMILARITY_MIN = 0.55
"""How similar a known option must be to be suggested. `rate` is this similar to `rate_per_s`."""

Model = TypeVar("Model", bound=BaseModel)


class Fault(msgspec.Struct, frozen=True, order=True):
    """A fault in a configuration: the path of a member, and the message."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SettingsError(Exception):
    """Raised for an invalid configuration. `faults` lists everything that is wrong with it."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class Faults:
    """Collects faults. Ignores later faults of the members in `unread`, whose values could not be read."""

    def __init__(self) -> None:
        self.found: list[Fault] = []
        self.unread: AbstractSet[str] = frozenset()

    def add(self, path: str, message: str) -> None:
        """Add a fault."""
        if path not in self.unread:
            self.found.append(Fault(path, message))

    def validate(
        self, model: type[Model], data: object, path: str, other: type[BaseModel] | None = None
    ) -> Model | None:
        """Return the data as a model. If they are invalid, add their faults and return None.

        `other` has options of the same mapping that were validated separately.
        """
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for fault in error.errors(include_url=False, include_input=False):
                place = ".".join([path, *map(str, fault["loc"])]).strip(".")
                message = _message(fault, [model] if other is None else [model, other])
                self.add(place, message + _EXAMPLES.get(place, "") if message == _NO_MAPPING else message)
            return None


def _message(fault: "ErrorDetails", models: list[type[BaseModel]]) -> str:
    """Return the message for a fault. `models` have the known options."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return "is not a known option" + _suggestion(fault["loc"], models)
    if kind == "string_pattern_mismatch" and context["pattern"] == "^https?://":
        return "must begin with http:// or https://"
    if kind == "too_short":
        return f"needs at least {context['min_length']} {'entry' if context['min_length'] == 1 else 'entries'}"
    if kind in _MESSAGES:
        return _MESSAGES[kind].format(**context)
    text = fault["msg"].removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _suggestion(place: tuple[int | str, ...], models: list[type[BaseModel]]) -> str:
    """Return a question about the most similar option of the same mapping, or an empty text."""
    *above, name = place
    found = [nested for model in models for nested in _models(model)]
    for part in above:
        if isinstance(part, str):
            fields = [each.model_fields[part] for each in found if part in each.model_fields]
            found = [nested for field in fields for nested in _models(field.annotation)]
    known = [option for each in found for option in each.model_fields]
    return similar(str(name), known)


def similar(name: str, known: Iterable[str]) -> str:
    """Return a question about the most similar known name, or an empty text."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILARITY_MIN)
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
