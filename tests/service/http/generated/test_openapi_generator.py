"""Clients that openapi-generator generates from the document have every operation, and compile."""

import compileall
import json
import re
import subprocess
from pathlib import Path

import pytest

from servers.install import ensure_command, find_command
from servers.maven import ensure_jars, plain_java
from servers.node import ensure_modules, ensure_node
from service.http.generated.test_generated_typescript import OPTIONS
from support.running import Service

pytestmark = [pytest.mark.server, pytest.mark.full]

HERE = Path(__file__).parent
GO_MODULE = ("--git-user-id", "tableside", "--git-repo-id", "client", "--package-name", "client")
HARMLESS = re.compile(
    r"3\.1 support is still in beta|Failed to get the schema name: null|Renamed to|example|Default to typing\.Any"
)
"""Warnings about names, examples and types. Others could mean that an endpoint, a response or an error is missing."""


def test_a_python_client_compiles(document: Path, tmp_path: Path) -> None:
    generate(document, "python", tmp_path)
    assert compileall.compile_dir(tmp_path / "openapi_client", quiet=1)


def test_a_java_client_compiles(document: Path, tmp_path: Path) -> None:
    generate(document, "java", tmp_path)
    run([ensure_command("mvn", "maven"), "--quiet", "--batch-mode", "compile"], tmp_path)


def test_a_typescript_client_compiles(document: Path, tmp_path: Path) -> None:
    generate(document, "typescript-axios", tmp_path)
    node, _ = ensure_node()
    modules = ensure_modules("openapi-typescript", HERE / "package.json") / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    run([node, modules / "typescript/bin/tsc", *OPTIONS, "--noEmit", "index.ts"], tmp_path)


def test_a_go_client_reads_and_writes_records(service: Service, document: Path, tmp_path: Path) -> None:
    go = find_command("go")
    assert go is not None, "go is missing: install it"
    generate(document, "go", tmp_path, *GO_MODULE)
    (tmp_path / "use").mkdir()
    (tmp_path / "use" / "main.go").write_bytes((HERE / "client.go").read_bytes())
    run([go, "run", "-mod=mod", "./use", service.url], tmp_path)


def generate(document: Path, language: str, folder: Path, *options: str) -> None:
    """Generate a client, and check that it has a method for every operation and that no warning reports a loss."""
    java, [jar] = ensure_command("java", "default-jre-headless"), ensure_jars("openapi-generator").glob("*.jar")
    arguments: list[str | Path] = ["--input-spec", document, "--generator-name", language, "--output", folder, *options]
    printed = run([java, "-jar", jar, "generate", *arguments], folder)
    complaints = [line for line in printed.splitlines() if re.search("WARN|ERROR", line)]
    assert [line for line in complaints if not HARMLESS.search(line)] == []
    paths = json.loads(document.read_bytes())["paths"]
    operations = {one["operationId"] for item in paths.values() for one in item.values() if "operationId" in one}
    suffix = {"python": "py", "typescript-axios": "ts"}.get(language, language)
    words = set(re.findall(r"\w+", "".join(path.read_text() for path in folder.rglob(f"*.{suffix}"))))
    assert operations
    assert {plain(name) for name in operations} <= {plain(word) for word in words}


def plain(name: str) -> str:
    """Return a name in a form that does not depend on the style of a language."""
    return name.replace("_", "").lower()


def run(command: list[str | Path], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=plain_java(), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
