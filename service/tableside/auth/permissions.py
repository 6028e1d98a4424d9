"""Callers and their permissions to read and write tables, given as patterns of table names."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import lru_cache
from math import inf
from typing import Literal, TypeAlias

from ..core import Batch, Get, Operation, Put, TableError, Update

Permission: TypeAlias = Literal["read", "write"]

COMPANION = "runs"
"""What follows the @ in the name of a table's companion, which remembers the jobs that write the table."""


@lru_cache(maxsize=256)
def compiled_patterns(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one regular expression for several shell patterns. A match takes a tenth of a microsecond."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


class Forbidden(TableError):
    """The caller lacks the permission for an operation."""

    code = "forbidden"


class Caller:
    """An authenticated principal: its name and permissions. `read` and `write` are patterns of table names.

    `until` is when its token expires, in Unix seconds.
    """

    __slots__ = ("_patterns", "admin", "name", "read", "until", "write")

    def __init__(
        self, name: str, read: Iterable[str] = (), write: Iterable[str] = (), *, admin: bool = False, until: float = inf
    ) -> None:
        self.name = name
        self.read, self.write = tuple(dict.fromkeys(read)), tuple(dict.fromkeys(write))
        self.admin = admin
        self.until = until
        self._patterns = {"read": compiled_patterns(self.read), "write": compiled_patterns(self.write)}

    def may(self, permission: Permission, table: str) -> bool:
        """Return whether the caller has the permission for a table of this name, which need not exist.

        A generation (`planes@8`) has the permissions of its table. A table's companion (`planes@runs`) is for the jobs
        that write the table, so it needs only their permission.
        """
        name, _, suffix = table.partition("@")
        return self._patterns["write" if suffix == COMPANION else permission].match(name) is not None

    def may_any(self, table: str) -> bool:
        """Return whether the caller has any permission for a table of this name."""
        return self.may("read", table) or self.may("write", table)

    def check(self, permission: Permission, table: str) -> None:
        """Raise Forbidden if the caller does not have the permission for the table."""
        if not self.may(permission, table):
            raise self.refusal(permission, table)

    def check_any(self, table: str) -> None:
        """Raise Forbidden if the caller has no permission for the table."""
        if not self.may_any(table):
            raise Forbidden(f"table {table!r}: the caller {self.name!r} has no permission for it")

    def refusal(self, permission: Permission, table: str) -> Forbidden:
        """Return the error for an operation that requires the right."""
        return Forbidden(f"table {table!r}: the caller {self.name!r} may not {permission} it")


UNRESTRICTED = Caller("", ["*"], ["*"], admin=True)
"""The caller of every request if no tokens are configured. It has all permissions."""

ANONYMOUS = Caller("")
"""The caller of requests to public paths if tokens are configured. It has no permissions."""


def refusals_of(caller: Caller, table: str, operations: Sequence[Operation]) -> dict[int, Forbidden]:
    """Return the errors of the operations that the caller has no permission for, by position."""
    if caller is UNRESTRICTED:
        return {}
    read = None if caller.may("read", table) else caller.refusal("read", table)
    write = None if caller.may("write", table) else caller.refusal("write", table)
    if read is None and write is None:
        return {}
    if isinstance(operations, Batch) and "returning" not in operations.columns:
        refusal = read if operations.kind is Get else write
        return {} if refusal is None else dict.fromkeys(range(len(operations)), refusal)

    def refusal_of(operation: Operation) -> Forbidden | None:
        match operation:
            case Get():
                return read
            case Put(returning=True) | Update(returning=True):
                return write or read
            case _:
                return write

    return {at: refusal for at, one in enumerate(operations) if (refusal := refusal_of(one)) is not None}
