"""The generations of a table: which complete contents it has, which one is current, and what changes that.

    1 current  →  create   1 current, 2 loading  →  activate 2   1 kept, 2 current  →  activate 1   1 current, 2 kept

Functions are pure. A generation that is removed stays in the state `removed` until its records are gone, so that
another process removes them if this one ends.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from ..core import GenerationNotFound, InvalidOperation
from ..core.errors import PreconditionFailed

LOADING_MAX = 8
"""Maximum number of generations of a table that load at the same time."""

NOTE_CHARACTERS_MAX = 1000

State: TypeAlias = Literal["loading", "current", "kept", "removed"]

STATES: tuple[State, ...] = get_args(State)


class Generation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One complete content of a table. Times are in Unix milliseconds, 0 is unknown or never.

    `request` is the `Idempotency-Key` of the request that created it.
    """

    number: int
    state: State
    created_ms: int = 0
    activated_ms: int = 0
    written_ms: int = 0
    note: str | None = None
    request: str | None = None


class Generations(msgspec.Struct, frozen=True, omit_defaults=True):
    """The generations of one table by rising number. `last` is the highest number that was ever used."""

    every: tuple[Generation, ...] = (Generation(1, "current"),)
    last: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError if the numbers do not rise, or not exactly one generation is current."""
        numbers = [one.number for one in self.every]
        states = [one.state for one in self.every]
        if (
            states.count("current") != 1
            or numbers != sorted({*numbers})
            or not 0 < numbers[0] <= numbers[-1] <= self.last
        ):
            raise ValueError("the numbers of generations rise, `last` is the highest or above, and one is current")

    @property
    def current(self) -> Generation:
        """The generation that requests without a number read and write."""
        return next(one for one in self.every if one.state == "current")

    @property
    def removed(self) -> tuple[Generation, ...]:
        """The generations whose records are still to be removed."""
        return tuple(one for one in self.every if one.state == "removed")

    def removed_since(self, before: "Generations") -> list[int]:
        """Return the numbers of the generations that were removed after this earlier state."""
        earlier = {one.number for one in before.removed}
        return [one.number for one in self.removed if one.number not in earlier]

    @property
    def present(self) -> tuple[Generation, ...]:
        """The generations that can be read."""
        return tuple(one for one in self.every if one.state != "removed")

    def find(self, number: int) -> Generation:
        """Return a generation that can be read. Raise GenerationNotFound if there is none with this number."""
        for one in self.present:
            if one.number == number:
                return one
        raise GenerationNotFound(f"the table has no generation {number}, or it was removed")

    def created(self, now_ms: int, note: str | None = None, request: str | None = None) -> "Generations":
        """Add one that loads, unless one that loads has the same `request`. Raise InvalidOperation if too many load."""
        if self.of_request(request) is not None:
            return self
        loading = [one for one in self.every if one.state == "loading"]
        if len(loading) >= LOADING_MAX:
            raise InvalidOperation(f"{LOADING_MAX} generations of the table load already: activate or delete one")
        added = Generation(self.last + 1, "loading", now_ms, 0, now_ms, note, request)
        return Generations((*self.every, added), added.number)

    def skipped(self, number: int) -> "Generations":
        """Never use this number, nor a lower one that is not used yet."""
        return replace(self, last=max(self.last, number))

    def of_request(self, request: str | None) -> Generation | None:
        """Return the generation that loads and was created by a request with this `Idempotency-Key`."""
        found = (one for one in self.every if request and one.request == request and one.state == "loading")
        return next(found, None)

    def activated(self, number: int, now_ms: int, kept: int, expected: int | None = None) -> "Generations":
        """Make a generation current, keep the `kept` previous ones, and remove older ones that load.

        Raise GenerationNotFound, or PreconditionFailed if the current one is not `expected`.
        """
        chosen, current = self.find(number), self.current
        if chosen == current:
            return self
        if expected not in (None, current.number):
            raise PreconditionFailed(f"the current generation is {current.number}, not {expected}")
        earlier = sorted((one for one in self.every if one.state == "kept" and one != chosen), key=_activated)
        staying = {one.number for one in [*earlier, current][::-1][:kept]}
        return self._changed(
            lambda one: (
                replace(one, state="current", activated_ms=max(now_ms, current.activated_ms + 1))
                if one == chosen
                else replace(one, state="kept")
                if one.number in staying
                else _removed(one)
                if one.state in ("kept", "current") or one.number < number
                else one
            )
        )

    def without(self, number: int) -> "Generations":
        """Remove a generation, if it is there. Raise PreconditionFailed if it is the current one."""
        if self.current.number == number:
            raise PreconditionFailed(f"generation {number} is current: activate another one first")
        return self._changed(lambda one: _removed(one) if one.number == number else one)

    def written(self, at_ms: Mapping[int, int]) -> "Generations":
        """Note when generations were written last, by their numbers."""
        return self._changed(lambda one: replace(one, written_ms=max(one.written_ms, at_ms.get(one.number, 0))))

    def without_idle(self, written_before_ms: int) -> "Generations":
        """Remove the generations that load and have not been written since this time."""
        return self._changed(
            lambda one: _removed(one) if one.state == "loading" and one.written_ms < written_before_ms else one
        )

    def forgotten(self, number: int) -> "Generations":
        """Forget a removed generation, whose records are gone."""
        return replace(self, every=tuple(one for one in self.every if one.number != number or one.state != "removed"))

    def _changed(self, change: Callable[[Generation], Generation]) -> "Generations":
        return replace(self, every=tuple(map(change, self.every)))


def _removed(generation: Generation) -> Generation:
    return replace(generation, state="removed", note=None)


def _activated(generation: Generation) -> int:
    return generation.activated_ms


AllGenerations = dict[str, Generations]
"""The generations of a store's tables, by the table's name in the store. Others have only their first generation."""

ONLY_FIRST = Generations()


def encode(tables: AllGenerations) -> bytes:
    """Return the JSON text that a store keeps. Tables that never had another generation are absent."""
    return msgspec.json.encode(tables)


def decode(text: bytes) -> AllGenerations:
    """Return what `encode` was called with. Raise msgspec.DecodeError if the text is something else."""
    return msgspec.json.decode(text, type=AllGenerations)
