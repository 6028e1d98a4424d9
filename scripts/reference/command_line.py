"""The page of the command line, from the help of its commands."""

import re
import subprocess
import sys
from collections.abc import Iterable

HEAD = """\
# Command line

The arguments and options of every command, as in `tableside VERB --help`.
[The guide](../command-line.md) has examples.
The exit code is 0 for success, 1 for an outcome that failed, and 2 for wrong usage.
Every command has `--help`.

This page is generated: `scripts/run python -m scripts.reference` renews it.
"""

CONNECTION = """\
## The connection

All commands except `serve`, `check` and `token` have these options:
"""

SHARED = 7
"""An option of this many commands is described once."""


def page() -> str:
    """Return the page."""
    command = [sys.executable, "-m", "typer", "tableside.cli", "utils", "docs", "--name", "tableside"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - ours, with no words of others
    _, _, commands = text.partition("# `tableside`\n")
    options = [
        option for option in re.findall(r"^\* `--.*\n", commands, re.MULTILINE) if commands.count(option) >= SHARED
    ]
    shared = list(dict.fromkeys(option for option in options if "--help" not in option))
    shown = _with_commas(_without_lists(_without_options(commands, shared)))
    return f"{HEAD}\n{CONNECTION}\n{_with_commas(''.join(shared))}\n## `tableside`\n\n{shown.strip()}\n".replace(
        "&#x27;", "'"
    )


def _without_options(text: str, shared: Iterable[str]) -> str:
    """Remove the options that are described once, the help, and headings that then have no options."""
    for option in (*shared, "* `--help`: Show this message and exit.\n"):
        text = text.replace(option, "")
    return re.sub(r"\*\*Options\*\*:\n\n(?=\n|\Z|#)", "", text)


def _with_commas(text: str) -> str:
    """Separate the facts about an option, such as its variable and its default, with commas."""
    return re.sub(r"\[(?:env var|default)[^]\n]*\]", lambda facts: facts[0].replace("; ", ", "), text)


def _without_lists(text: str) -> str:
    """Remove lists of commands, whose sentences are truncated: each command has its own section."""
    return re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n?", "", text)
