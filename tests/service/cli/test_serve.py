"""`tableside check` and `tableside serve` with faulty files and options: one line for each fault, and no traceback."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.running import refused
from tableside.cli import app


@pytest.mark.parametrize("command", [("check",), ("serve", "--config")], ids=" ".join)
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"stores: &a {m: *a}", "is nested deeper than 32 levels"),
        (b"\0", "the file is not YAML"),
        (b"", "the configuration must be a mapping with stores and tables"),
    ],
    ids=range(3),
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


def test_check_lists_every_fault_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "tableside.yaml"
    file.write_text(
        "stores: {local: {kind: rocksdb}, other: {kind: floppy}}\n"
        "tables: {a: {store: nowhere}, b: {store: local, deadline_s: -1}}\n"
        "surprise: 1\n"
    )
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 1
    paths = {line.split(": ")[1] for line in result.stderr.splitlines()}
    assert paths == {"stores.local.path", "stores.other.kind", "tables.a.store", "tables.b.deadline_s", "surprise"}
    file.write_text("stores: {local: {kind: memory}}\ntables: {a: {store: local}}\n")
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--workers 2", "--workers 2: "),
        ("--workers 2 --config cached.yaml", "a cache needs a single worker"),
        ("--host 0.0.0.0", "use --insecure to listen on 0.0.0.0"),
    ],
)
def test_serve_refuses_options_that_contradict_the_configuration(
    options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cached.yaml").write_text(
        "stores: {s: {kind: redis, url: 'redis://127.0.0.1:1'}}\n"
        "tables: {t: {store: s, cache: {records_max: 1, ttl_s: 1}}}\n"
    )
    ended = CliRunner().invoke(app, ["serve", *options.split()])
    assert ended.exit_code == 2
    assert message in ended.stderr


def test_with_auth_the_service_can_listen_on_other_addresses(tmp_path: Path) -> None:
    """The start fails later and for another reason: this machine does not have the address."""
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: memory}}\n" + f"auth: {{tokens: [{{name: a, sha256: {'ab' * 32}}}]}}\n")
    guarded = refused(tmp_path, "--host", "192.0.2.1", "--config", str(config))
    assert guarded.returncode not in (0, 2)
    assert "--insecure" not in guarded.stderr
    assert "192.0.2.1" in guarded.stdout + guarded.stderr
