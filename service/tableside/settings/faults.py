"""Faults in a configuration. Validation collects them and continues, so that one run reports all of them."""

from collections.abc import Set as AbstractSet
from typing import TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from .fault_messages import fault_message

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
"""The pattern for names of stores and tables."""

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


class FaultCollector:
    """Collects faults. Ignores faults of members in `known`, whose values could not be read."""

    def __init__(self, known: AbstractSet[str] = frozenset()) -> None:
        self.found: list[Fault] = []
        self._known = known

    def add(self, path: str, message: str) -> None:
        """Add a fault, unless an earlier fault of the member is known."""
        if path not in self._known:
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
                self.add(place, fault_message(fault, place, model, other))
            return None
