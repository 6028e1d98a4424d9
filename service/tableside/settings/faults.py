"""What is wrong in a configuration, and where; found all at once, so a fault is kept and the search goes on."""

from collections.abc import Set as AbstractSet
from typing import TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
"""What stores and tables may be called."""

Model = TypeVar("Model", bound=BaseModel)


class Fault(msgspec.Struct, frozen=True, order=True):
    """Something wrong in a configuration, and where."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SettingsError(Exception):
    """A configuration has faults; `faults` are all of them."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class FaultCollector:
    """Collects what is wrong; of members at the paths in `unset` it is not known what will stand there."""

    def __init__(self, unset: AbstractSet[str] = frozenset()) -> None:
        self.found: list[Fault] = []
        self._unset = unset

    def add(self, path: str, message: str) -> None:
        """Keep a fault."""
        if path not in self._unset:
            self.found.append(Fault(path, message))

    def model(self, model: type[Model], data: object, path: str) -> Model | None:
        """Return what the data are, or None, and keep what is wrong with them."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for fault in error.errors(include_url=False, include_input=False):
                self.add(".".join([path, *map(str, fault["loc"])]).strip("."), _message(fault["type"], fault["msg"]))
            return None


def _message(kind: str, message: str) -> str:
    return "is not known here" if kind == "extra_forbidden" else message[:1].lower() + message[1:]
