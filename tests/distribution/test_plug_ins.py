"""The documented example of a package with a kind of store works, installed into a separate environment."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from pathlib import Path

import pytest

from scripts.bootstrap import ROOT
from support.running import running

pytestmark = pytest.mark.server

EXAMPLE = ROOT / "examples" / "tableside-files"

PAGE = (ROOT / "docs" / "writing-a-store.md").read_text(encoding="utf-8")

CONTRACT = """
from contextlib import asynccontextmanager

from contract import StoreContract
from tableside_files import FilesBackend


"""
"""Code that the page's test class needs: imports and fixtures."""


def of_page(language: str, containing: str) -> str:
    """Return the only block of the page in this language that contains this text."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [block] = [block for block in found if containing in block]
    return str(block)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the example and all packages of the current environment."""
    directory = tmp_path_factory.mktemp("plug-in")
    venv.create(directory / "venv", symlinks=True, with_pip=False)
    python = directory / "venv" / "bin" / "python"
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (own / "inherited.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", directory / "dist", EXAMPLE)
    [wheel] = (directory / "dist").glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    return python


def run(*command: object, cwd: Path | None = None, code: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_passes_the_shared_suite(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_files.py").write_text(CONTRACT + of_page("python", "class TestFiles"))
    options = ["--rootdir", ROOT, "--config-file", ROOT / "pyproject.toml", "-q", "-p", "no:cacheprovider"]
    shown = run(python, "-m", "pytest", *options, tmp_path / "test_files.py", cwd=ROOT)
    assert " passed" in shown
    assert "failed" not in shown


def test_the_service_serves_it(python: Path, tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text(of_page("yaml", "kind: files"))
    for _ in range(2):  # the records outlive the process
        with running(tmp_path, config, python=python) as service:
            update = json.dumps({"update": {"$inc": {"seen": 1}}, "default": {"seen": 0}}).encode()
            url = f"{service.url}/v1/tables/colours"
            asked = urllib.request.Request(f"{url}/records/red", update, {"Content-Type": "application/json"})
            asked.method = "PATCH"
            with urllib.request.urlopen(asked) as answer:
                assert answer.status in (201, 204)
            with urllib.request.urlopen(url) as answer:
                assert json.load(answer)["store"] == {"name": "small", "kind": "files"}
    [line] = (tmp_path / "tables" / "colours.jsonl").read_text().splitlines()
    assert json.loads(line)[:2] == ["red", {"seen": 2}]


def test_its_options_are_checked(python: Path, tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {small: {kind: files, folder: x}}\ntables: {t: {store: small, layout: wide}}\n")
    shown = run(python, "-m", "tableside", "check", config, code=1)
    assert "stores.small.folder: is not a known option" in shown
    assert "stores.small.path: field required" in shown
    assert "tables.t.layout: is not a known option" in shown


def test_the_documentation_shows_the_example_unchanged() -> None:
    for file in ("pyproject.toml", "tableside_files.py"):
        assert f"\n{(EXAMPLE / file).read_text()}```" in PAGE, file
