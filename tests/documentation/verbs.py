"""The verbs and options of the command line, for comparison with the commands on pages."""

import shlex

import typer

from tableside.cli import app


def words(code: str) -> list[str]:
    """Return the words of a command, or none if the text is not a command."""
    try:
        return shlex.split(code)
    except ValueError:
        return []


def options_of(verb: list[str]) -> set[str]:
    """Return the options of a verb. Raise KeyError if the verb does not exist."""
    found: typer.core.TyperCommand | typer.core.TyperGroup = typer.main.get_command(app)  # type: ignore[assignment]  # what typer makes
    for word in verb:
        if isinstance(found, typer.core.TyperGroup):
            found = found.commands[word]  # type: ignore[assignment]  # likewise
    return {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
