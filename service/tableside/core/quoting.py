"""Names from requests in error messages: quoted, printable and of limited length."""

NAME_CHARACTERS_MAX = 80
"""A longer name, or path of names, is cut in messages."""


def quoted(name: str) -> str:
    """Return a name in backticks. Characters that cannot be printed are escaped, and a long name is cut."""
    cut = name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX - 1] + "…"
    return f"`{cut if cut.isprintable() else ''.join(map(_printable, cut))}`"


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
