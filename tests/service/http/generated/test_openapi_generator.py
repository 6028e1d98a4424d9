"""Clients that openapi-generator generates from the document have every operation, and compile."""

import compileall
import json
import re
import subprocess
from pathlib import Path

import pytest

from servers.install import ensure_command, find_command
from servers.maven import ensure_jars, plain_java
from support.running import Service

pytestmark = [pytest.mark.server, pytest.mark.full]

HERE = Path(__file__).parent
GO_MODULE = ("--git-user-id", "tableside", "--git-repo-id", "client", "--package-name", "client")


def test_a_python_client_compiles(document: Path, tmp_path: Path) -> None:
    generate(document, "python", tmp_path)
    assert compileall.compile_dir(tmp_path / "openapi_client", quiet=1)


def test_a_java_client_compiles(document: Path, tmp_path: Path) -> None:
    generate(document, "java", tmp_path)
    run([ensure_command("mvn", "maven"), "--quiet", "--batch-mode", "compile"], tmp_path)


def test_a_go_client_reads_and_writes_records(service: Service, document: Path, tmp_path: Path) -> None:
    go = find_command("go")
    assert go is not None, "go is missing: install the version that tests/servers/apiserver/go.mod names"
    generate(
        document, "go", tmp_path, "--git-user-id", "tableside", "--git-repo-id", "client", "--package-name", "client"
    )
    (tmp_path / "use").mkdir()
    (tmp_path / "use" / "main.go").write_bytes((HERE / "client.go").read_bytes())
    run([go, "run", "-mod=mod", "./use", service.url], tmp_path)


def generate(document: Path, language: str, folder: Path, *options: str) -> None:
    """Generate a client, and check that it has a method for every operation."""
    java, [jar] = ensure_command("java", "default-jre-headless"), ensure_jars("openapi-generator").glob("*.jar")
    arguments: list[str | Path] = [
        "generate",
        "--input-spec",
        document,
        "--generator-name",
        language,
        "--output",
        folder,
        *options,
    ]
    run([java, "-jar", jar, *arguments], folder)
    paths = json.loads(document.read_bytes())["paths"]
    operations = {one["operationId"] for item in paths.values() for one in item.values() if "operationId" in one}
    suffix = {"python": "py"}.get(language, language)
    words = set(re.findall(r"\w+", "".join(path.read_text() for path in folder.rglob(f"*.{suffix}"))))
    assert operations
    assert {plain(name) for name in operations} <= {plain(word) for word in words}


def plain(name: str) -> str:
    """Return a name in a form that does not depend on the style of a language."""
    return name.replace("_", "").lower()


def run(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, env=plain_java(), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
