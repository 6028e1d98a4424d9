"""Patterns of tables' names, by which whoever asks is given rights."""

from typing import Annotated

from pydantic import Field

PATTERNS_MAX = 1000
"""How many patterns of tables one caller may read, and how many write."""

TablePatterns = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*?!\[\]-]{1,200}$")], ...], Field(max_length=PATTERNS_MAX)
]
"""Names of tables, in which `*` is anything, `?` one character, and `[ab]` one of these."""
