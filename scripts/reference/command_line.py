"""The page of the command line, from the help of its commands."""

import re
import subprocess
import sys

HEAD = """\
# Command line

The arguments and options of every command, as in `tableside VERB --help`.
[The guide](../command-line.md) has examples.
The exit code is 0 for success, 1 for an outcome that failed, and 2 for wrong usage.

This page is generated: `scripts/run python -m scripts.reference` renews it.
"""


def page() -> str:
    """Return the page."""
    command = [sys.executable, "-m", "typer", "tableside.cli", "utils", "docs", "--name", "tableside"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - ours, with no words of others
    _, _, commands = text.partition("# `tableside`\n")
    return f"{HEAD}\n## `tableside`\n\n{_with_commas(_without_lists(commands)).strip()}\n"


def _with_commas(text: str) -> str:
    """Separate the facts about an option, such as its variable and its default, with commas."""
    return re.sub(r"\[(?:env var|default)[^]\n]*\]", lambda facts: facts[0].replace("; ", ", "), text)


def _without_lists(text: str) -> str:
    """Remove lists of commands, whose sentences are truncated: each command has its own section."""
    return re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n?", "", text)
