"""Run all blocks of a page in order, in a separate directory with a separate service."""

import contextlib
import io
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from documentation.blocks import Block
from support.consoles import SAID_URL, Command, as_run_here, commands, comparable
from support.running import Service, running

COMMAND_S = 120


class PageRun:
    """Runs the blocks of a page like a reader. A text block must equal the output of the preceding program.

    `url` is the address of the page's service, and `printed` the output of the last program.
    """

    def __init__(self, directory: Path, names: Mapping[str, Any], said: Mapping[str, str] | None = None) -> None:
        """Start with the global `names` of programs. `said` maps addresses on the page to addresses in this run."""
        self._directory = directory
        self._names = dict(names)
        self._said = dict(said or {})
        self._services = contextlib.ExitStack()
        self.url = SAID_URL
        self.printed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._services.close()

    def do(self, block: Block) -> None:
        """Run a block, and compare its output with the page."""
        done: Callable[[str], None] = getattr(self, f"_{block.language}")
        done(self._here(block.text))

    def _here(self, text: str) -> str:
        for said, here in self._said.items():
            text = text.replace(said, here)
        return text

    def _console(self, text: str) -> None:
        for command in commands(text):
            if command.line.startswith("cat "):
                (self._directory / command.line.removeprefix("cat ")).write_text(command.printed)
            else:
                self._compare(command)

    def _compare(self, command: Command) -> None:
        printed = self._run(command.line, check=False)
        assert comparable(printed) == comparable(command.printed), f"{command.line}\n{printed}"

    def _sh(self, text: str) -> None:
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("tableside serve"):
                self._serve(line)
            else:
                self._run(line, check=True)

    def _serve(self, line: str) -> None:
        """Start the service with the command of the line, after stopping the previous one."""
        self._services.close()
        config = re.search(r"--config (\S+)", line)
        file = self._directory / config[1] if config else None
        service: Service = self._services.enter_context(running(self._directory, file))
        self.url = service.url

    def _run(self, line: str, *, check: bool) -> str:
        done = subprocess.run(
            as_run_here(line, self.url),
            shell=True,
            cwd=self._directory,
            env={**os.environ, "TABLESIDE_URL": self.url},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _python(self, text: str) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self._directory):
            exec(text.replace(SAID_URL, self.url), self._names)
        self.printed = printed.getvalue()

    def _text(self, text: str) -> None:
        assert self.printed.split() == text.split(), self.printed
