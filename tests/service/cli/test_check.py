"""`tableside check`, and a start with a faulty file: every fault in a separate line, and never a traceback."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tableside.cli.main import app

ALIASES = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize("command", [("check",), ("serve", "--config")], ids=" ".join)
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"stores: &a {m: *a}", "stores.m: is an alias of a value that contains it"),
        (ALIASES.encode(), "a5.7: here the file exceeds 1,000,000 values, with aliases counted in full"),
        (b"a: " + b"[" * 100_000, "is nested deeper than 32 levels"),
        (
            b"stores: {a: {kind: memory}}\ntables: {yes: {store: a}}",
            "tables.yes: YAML reads this name as a boolean: quote it",
        ),
        (b"stores: \xff", "cannot be read"),
        (b"\0", "the file is not YAML"),
        (b"", "the configuration must be a mapping with stores and tables"),
    ],
    ids=range(7),
)
def test_a_faulty_file_is_one_line(command: tuple[str, ...], content: bytes, fault: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(content)
    result = CliRunner().invoke(app, [*command, str(tmp_path / "f.yaml")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(result.exception, SystemExit)
    [line] = result.stderr.splitlines()
    assert line.startswith(f"{tmp_path / 'f.yaml'}: ")
    assert fault in line


@pytest.mark.parametrize("place", ["absent.yaml", ".", "file/within"])
def test_a_file_that_cannot_be_read_is_one_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["check", str(tmp_path / place)])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "cannot be read" in result.stderr
