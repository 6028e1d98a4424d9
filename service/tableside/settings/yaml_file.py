"""Reads configuration files: UTF-8 text of limited size, which is YAML."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from .faults import Fault, SettingsError
from .yaml_reader import YamlReader

FILE_BYTES_MAX = 16 * 2**20
"""Maximum size of a configuration file, and of a file with tokens."""


def read_text(file: str | Path, path: str = "") -> str:
    """Return the text of a file. Raise SettingsError, with a fault at `path`, if it cannot be read or is too large."""
    try:
        with open(file, "rb", opener=_open_without_waiting) as opened:
            os.set_blocking(opened.fileno(), True)
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"it is larger than {FILE_BYTES_MAX} bytes")
        return content.decode()
    except (OSError, ValueError) as error:  # a ValueError also for a path with U+0000
        raise SettingsError([Fault(path, f"{file} cannot be read: {error}")]) from None


def parse_yaml(text: str, path: str, faults: list[Fault]) -> Any:
    """Return the data in a text, and add their faults, below `path`, to `faults`.

    Raise SettingsError if the text is not YAML or exceeds a limit.
    """
    try:
        return YamlReader(text, path, faults).document()
    except yaml.YAMLError as error:
        raise SettingsError([*faults, Fault(path, f"the file is not YAML: {_yaml_problem(error)}")]) from None


def _open_without_waiting(file: str, flags: int) -> int:
    """Open a file, also if it is a named pipe without a writer: that one is empty."""
    return os.open(file, flags | os.O_NONBLOCK)


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Return the problem and its position in one line, without quoting the file, which may contain secrets."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = _QUOTED_NAME.sub(r"\1", error.problem or "")
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    return " ".join(str(error).split())


_QUOTED_NAME = re.compile(r"\b(alias|anchor|the tag|tag handle) .*", re.DOTALL)
"""Text that PyYAML quotes if it takes a value for an alias or a tag, such as a password that begins with `*` or `!`."""
