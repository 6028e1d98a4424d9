"""Test cases in Java, for code that Python cannot call: compiled with the state store's sources, run in one process.

A case is a `public static` method, with one parameter (`JsonNode arguments`) or none, of a class in a file of `cases/`,
whose folders mirror the packages below `tableside.state`. Its result is converted to JSON. A case fails if it throws.
"""

import json
import os
import re
import select
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.state_jar import SOURCES, compile_java, find_spark_jars, sources
from servers.install import ensure_folder
from servers.jdk import ensure_javac

CASES = Path(__file__).parent / "cases"
OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-ea")
CASE_MAX_S = 120.0
LOG_LINES_MAX = 60
SIGNATURE = re.compile(r"(?m)^  public static [\w<>\[\], .?]+ (\w+)\((?:(?:final )?(?:JsonNode|ObjectNode) \w+)?\)")


class CaseFailed(AssertionError):
    """A case threw, or did not end in time. The message contains the output of Java."""


def names(class_name: str) -> list[str]:
    """Return the cases of a class, in order, for `pytest.mark.parametrize`, without compiling anything."""
    return SIGNATURE.findall(_file(class_name).read_text())


def compiled() -> Path:
    """Return a folder with the classes of the state store and of all cases, and the `options` that they need."""
    files = [*sources(), *sorted(CASES.rglob("*.java"))]
    return ensure_folder("state-cases", tuple(files), lambda folder: _compile(files, folder))


class Java:
    """One process for all cases. The first case starts it, and it is restarted after a case that did not end."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._process: subprocess.Popen[str] | None = None

    def run(self, class_name: str, method: str, *, timeout_s: float = CASE_MAX_S, **arguments: Any) -> Any:
        """Run a case with arguments that JSON can represent, and return its result."""
        if self._process is None:
            self._process = _start(self._scratch)
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        case = {"class": _java_name(class_name), "method": method, "arguments": arguments}
        asked.write(json.dumps(case) + "\n")
        asked.flush()
        is_answered, _, _ = select.select([answers], [], [], timeout_s)
        line = answers.readline() if is_answered else ""
        if not line:
            self.close()
            raise CaseFailed(
                f"{class_name}.{method} ended Java, or did not end within {timeout_s:g} s:\n{self._said()}"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise CaseFailed(f"{class_name}.{method}: {answer['error']}\n{self._said()}")
        return answer["ok"]

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None

    def _said(self) -> str:
        lines = _log(self._scratch).read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES_MAX:])


@contextmanager
def java(scratch: Path) -> Iterator[Java]:
    """Yield the process that runs cases, with its log in a folder."""
    started = Java(scratch)
    try:
        yield started
    finally:
        started.close()


def _file(class_name: str) -> Path:
    return next(CASES.rglob(f"{class_name}.java"))


def _java_name(class_name: str) -> str:
    """Return the name of a class with its package."""
    folders = _file(class_name).relative_to(CASES).parent.parts
    return ".".join(["tableside.state", *folders, class_name])


def _start(scratch: Path) -> subprocess.Popen[str]:
    folder = compiled()
    options = shlex.split((folder / "options").read_text())
    with _log(scratch).open("ab") as log:
        return subprocess.Popen(
            [str(_java()), *OPTIONS, *options, "-cp", f"{folder}:{_jars()}/*", "tableside.state.Cases"],
            cwd=scratch,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
        )


def _compile(files: Sequence[Path], folder: Path) -> None:
    compile_java(ensure_javac(), files, folder, str(SOURCES), f"{_jars()}/*")
    command = [str(_java()), "-cp", f"{folder}:{_jars()}/*", "tableside.state.Cases", "options"]
    (folder / "options").write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _java() -> Path:
    """Return the `java` from the compiler's installation."""
    return ensure_javac().resolve().with_name("java")


def _jars() -> Path:
    jars = find_spark_jars()
    if jars is None:
        pytest.fail("no PySpark is installed whose jars the cases could be compiled against")
    return jars


def _log(scratch: Path) -> Path:
    return scratch / "java.log"
