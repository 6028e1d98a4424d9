"""Names from requests in error messages: quoted, printable and of limited length."""

from collections.abc import Collection
from itertools import islice

NAME_CHARACTERS_MAX = 80
"""Messages contain only the start of a longer name or path."""

NAMES_MAX = 5
"""A message lists at most so many names."""


def quoted(name: str) -> str:
    """Return a name in backticks. Characters that cannot be printed are escaped, and a long name is cut."""
    cut = name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX - 1] + "…"
    return f"`{cut if cut.isprintable() else ''.join(map(_printable, cut))}`"


def quoted_list(names: Collection[str]) -> str:
    """Return the first names in backticks, and how many more there are."""
    listed = ", ".join(quoted(name) for name in islice(names, NAMES_MAX))
    return listed if len(names) <= NAMES_MAX else f"{listed} and {len(names) - NAMES_MAX} more"


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
