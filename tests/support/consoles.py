"""Terminal sessions in documentation pages: parse the commands, run them and compare their output."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from typing import Any

from servers.install import ensure_command

SAID_URL = "http://127.0.0.1:8080"
"""The URL of the service in the pages."""

ETAG = re.compile(r"\b[0-9a-f]{16}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass(frozen=True)
class Command:
    """A command with its output, including errors."""

    line: str
    printed: str


def commands(block: str) -> list[Command]:
    """Return the commands of a block, in order. A backslash or an open quote continues a command on the next line."""
    return [_command(part) for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


def _command(part: str) -> Command:
    lines = part.splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        line = "".join(lines[:count])
        if _is_whole(line):
            return Command(line.rstrip("\n").replace("\\\n", " "), "".join(lines[count:]))
    raise ValueError(f"a quote is not closed: {part}")


def _is_whole(line: str) -> bool:
    try:
        shlex.split(line)
    except ValueError:
        return False
    return not line.endswith("\\\n")


def as_run_here(line: str, url: str) -> str:
    """Return a command adapted to this machine and the service at this URL."""
    python = shlex.quote(sys.executable)
    line = re.sub(r"^(tableside|python) ", lambda found: _here(found[1], python), line.replace(SAID_URL, url))
    return re.sub(r"^curl ", f"{ensure_command('curl', 'curl')} --silent ", line)


def _here(command: str, python: str) -> str:
    return f"{python} " if command == "python" else f"{python} -m {command} "


def comparable(printed: str) -> Any:
    """Return output without etags and times, which change in every run. JSON is compared as JSON."""
    text = TIME.sub("a time", ETAG.sub("an etag", printed.strip()))
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()
