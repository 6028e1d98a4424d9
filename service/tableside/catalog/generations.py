"""The generations of a table: which complete contents it has, which one is current, and what changes that.

    1 current  →  create   1 current, 2 loading  →  activate 2   1 kept, 2 current  →  activate 1   1 current, 2 kept

Functions are pure. A generation that is removed stays in the state `removed` until its records are gone, so that
another process removes them if this one ends.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from ..core.errors import GenerationNotFound, InvalidOperation, PreconditionFailed

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
        rising = numbers == sorted({*numbers}) and all(0 < number <= self.last for number in numbers)
        if not rising or len(self.in_state("current")) != 1:
            raise ValueError("the numbers of generations rise, `last` is the highest or above, and one is current")

    def in_state(self, state: State) -> list[Generation]:
        """Return the generations in a state. Those that are `removed` have records that are still to be removed."""
        return [one for one in self.every if one.state == state]

    @property
    def current(self) -> Generation:
        """The generation that requests without a number read and write."""
        return self.in_state("current")[0]

    @property
    def present(self) -> list[Generation]:
        """The generations that can be read."""
        return [one for one in self.every if one.state != "removed"]

    def removed_since(self, before: "Generations") -> list[int]:
        """Return the numbers of the generations that were removed after this earlier state."""
        earlier = {one.number for one in before.in_state("removed")}
        return [one.number for one in self.in_state("removed") if one.number not in earlier]

    def find(self, number: int) -> Generation:
        """Return a generation that can be read. Raise GenerationNotFound if there is none with this number."""
        for one in self.present:
            if one.number == number:
                return one
        raise GenerationNotFound(f"the table has no generation {number}, or it was removed")

    def created(self, now_ms: int, note: str | None, request: str) -> "Generations":
        """Add one that loads, unless one that loads has the same `request`. Raise InvalidOperation if too many load."""
        if self.of_request(request) is not None:
            return self
        if len(self.in_state("loading")) >= LOADING_MAX:
            raise InvalidOperation(f"{LOADING_MAX} generations of the table load already: activate or delete one")
        added = Generation(self.last + 1, "loading", now_ms, 0, now_ms, note, request)
        return Generations((*self.every, added), added.number)

    def skipped(self, number: int) -> "Generations":
        """Never use this number, nor a lower one that is not used yet."""
        return replace(self, last=max(self.last, number))

    def of_request(self, request: str) -> Generation | None:
        """Return the generation that loads and was created by a request with this `Idempotency-Key`."""
        return next((one for one in self.in_state("loading") if one.request == request), None)

    def activated(self, number: int, now_ms: int, kept: int, expected: int | None) -> "Generations":
        """Make a generation current, keep the `kept` previous ones, and remove older ones that load.

        Raise GenerationNotFound, or PreconditionFailed if the current one is not `expected`.
        """
        chosen, current = self.find(number), self.current
        if chosen == current:
            return self
        if expected not in (None, current.number):
            raise PreconditionFailed(f"the current generation is {current.number}, not {expected}")
        earlier = [one for one in sorted(self.in_state("kept"), key=attrgetter("activated_ms")) if one != chosen]
        staying = {one.number for one in [*earlier, current][::-1][:kept]}

        def change(one: Generation) -> Generation:
            if one == chosen:
                return replace(one, state="current", activated_ms=max(now_ms, current.activated_ms + 1))
            if one.number in staying:
                return replace(one, state="kept")
            return _removed(one) if one.state in ("kept", "current") or one.number < number else one

        return self._changed(change)

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
