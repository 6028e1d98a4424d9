"""Reads the faults: patches that change one line of the product and name the tests that should catch it."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
_TESTS = "Tests:"


@dataclass(frozen=True)
class Fault:
    """One patch: its name (`area/number-words`), a description of the fault, and the tests to run."""

    name: str
    file: Path
    sentence: str
    tests: tuple[str, ...]
    diff: str

    @property
    def changed_files(self) -> list[str]:
        """Return the files that the patch changes."""
        return [line.removeprefix("+++ b/") for line in self.diff.splitlines() if line.startswith("+++ ")]

    @property
    def changed_lines(self) -> tuple[int, int]:
        """Return the number of lines that the patch removes, and the number that it adds."""
        lines = [line for line in self.diff.splitlines() if not line.startswith(("---", "+++"))]
        return sum(line.startswith("-") for line in lines), sum(line.startswith("+") for line in lines)


def faults() -> list[Fault]:
    """Return every fault, by name."""
    return [_read(file) for file in sorted(HERE.glob("*/*.patch"))]


def _read(file: Path) -> Fault:
    header, _, diff = file.read_text().partition("\n--- ")
    sentence, tests, *_ = header.splitlines()
    name = file.relative_to(HERE).with_suffix("").as_posix()
    if not tests.startswith(_TESTS):
        raise ValueError(f"{file}: the second line begins with {_TESTS}")
    return Fault(name, file, sentence, tuple(tests.removeprefix(_TESTS).split()), f"--- {diff}")
