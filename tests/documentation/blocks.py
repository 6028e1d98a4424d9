"""The code blocks of the README and of the documentation's pages, with their positions."""

import re
import textwrap
from dataclasses import dataclass

from scripts.bootstrap import ROOT

GENERATED = "docs/reference/"
"""Pages that are generated from the code. Another test compares them as a whole."""

_FENCED = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A code block: its page, the first line of its text, its language, and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language or 'no language'})"


def pages() -> list[str]:
    """Return the names of the pages in docs and in the root, except generated ones."""
    names = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    return [
        "README.md",
        ".github/CONTRIBUTING.md",
        ".github/SECURITY.md",
        *(name for name in names if not name.startswith(GENERATED)),
    ]


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found["language"], textwrap.dedent(found["text"]))
        for found in _FENCED.finditer(text)
    ]


def every_block() -> list[Block]:
    """Return the code blocks of all pages."""
    return [block for page in pages() for block in blocks(page)]
