"""What a caller may do: read and write tables, by patterns of their names. Knows nothing of tokens or requests."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Literal, TypeAlias

from ..core import Get, Operation, Put, TableError, Update

Right: TypeAlias = Literal["read", "write"]


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches names that any of the shell's patterns does; matching takes a tenth of a microsecond."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


class Forbidden(TableError):
    """The caller may not do that."""

    code = "forbidden"


class Caller:
    """Who asks, by name, and what that caller may do: `read` and `write` are patterns of tables' names."""

    __slots__ = ("_patterns", "admin", "name")

    def __init__(self, name: str, read: Iterable[str] = (), write: Iterable[str] = (), *, admin: bool = False) -> None:
        self.name = name
        self.admin = admin
        self._patterns = {"read": _compiled(tuple(read)), "write": _compiled(tuple(write))}

    def may(self, right: Right, table: str) -> bool:
        """Return whether the caller has the right on a table of that name, whether or not there is one."""
        return self._patterns[right].match(table) is not None

    def may_some(self, table: str) -> bool:
        """Return whether the caller has any right on a table of that name."""
        return self.may("read", table) or self.may("write", table)

    def check(self, right: Right, table: str) -> None:
        """Raise Forbidden if the caller has not the right on the table."""
        if not self.may(right, table):
            raise self.refused(right, table)

    def check_some(self, table: str) -> None:
        """Raise Forbidden if the caller has no right on the table."""
        if not self.may_some(table):
            raise Forbidden(f"table {table!r}: the caller {self.name!r} has no right on it")

    def refused(self, right: Right, table: str) -> Forbidden:
        """Return the refusal of an operation that needs the right."""
        return Forbidden(f"table {table!r}: the caller {self.name!r} may not {right} it")


UNRESTRICTED = Caller("", ["*"], ["*"], admin=True)
"""Every caller where no tokens are configured."""

ANONYMOUS = Caller("")
"""Every caller of what is public where tokens are configured."""


def permitted(
    caller: Caller, table: str, operations: Sequence[Operation | TableError]
) -> Sequence[Operation | TableError]:
    """Return the operations of a batch, with a refusal in the place of each that the caller may not do."""
    if caller is UNRESTRICTED:
        return operations
    refusals = {right: caller.refused(right, table) for right in _RIGHTS if not caller.may(right, table)}
    if not refusals:
        return operations
    return [_refusal(operation, refusals) or operation for operation in operations]


_RIGHTS: tuple[Right, ...] = ("read", "write")


def _refusal(operation: Operation | TableError, refusals: dict[Right, Forbidden]) -> Forbidden | None:
    match operation:
        case TableError():
            return None
        case Get():
            return refusals.get("read")
        case Put(returning=True) | Update(returning=True):
            return refusals.get("write") or refusals.get("read")
        case _:
            return refusals.get("write")
