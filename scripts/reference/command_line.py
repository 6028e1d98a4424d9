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

ARGUMENTS = """\
## Arguments of several commands

"""

SHARED_OPTION, SHARED_ARGUMENT = 7, 3
"""An option, or an argument, of this many commands is described once. The usage of a command names its arguments."""


def page() -> str:
    """Return the page."""
    command = [sys.executable, "-m", "typer", "tableside.cli", "utils", "docs", "--name", "tableside"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - ours, with no words of others
    _, _, commands = text.partition("# `tableside`\n")
    options = [line for line in _repeated(commands, r"\* `--.*\n", SHARED_OPTION) if "--help" not in line]
    arguments = _repeated(commands, r"\* `\w+ <.*\n", SHARED_ARGUMENT)
    shown = _with_commas(_without_lists(_without_lines(commands, [*options, *arguments])))
    head = f"{HEAD}\n{CONNECTION}\n{_with_commas(''.join(options))}\n{ARGUMENTS}{''.join(arguments)}\n"
    return f"{head}## `tableside`\n\n{shown.strip()}\n".replace("&#x27;", "'")


def _repeated(text: str, line: str, count_min: int) -> list[str]:
    """Return the lines of this form that occur so many times, each once."""
    found = re.findall(f"^{line}", text, re.MULTILINE)
    return [one for one in dict.fromkeys(found) if found.count(one) >= count_min]


def _without_lines(text: str, shared: Iterable[str]) -> str:
    """Remove the lines that are described once, the help, and headings that then have no lines."""
    for line in (*shared, "* `--help`: Show this message and exit.\n"):
        text = text.replace(line, "")
    return re.sub(r"\*\*(Options|Arguments)\*\*:\n\n(?=\n|\Z|#|\*\*)", "", text)


def _with_commas(text: str) -> str:
    """Separate the facts about an option, such as its variable and its default, with commas."""
    return re.sub(r"\[(?:env var|default)[^]\n]*\]", lambda facts: facts[0].replace("; ", ", "), text)


def _without_lists(text: str) -> str:
    """Remove lists of commands, whose sentences are truncated: each command has its own section."""
    return re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n?", "", text)
