"""TypeScript that uses the types that openapi-typescript generates from the document compiles, and works."""

import subprocess
from pathlib import Path

import pytest

from servers.node import ensure_modules, ensure_node
from support.running import Service

pytestmark = [pytest.mark.daily, pytest.mark.server]

HERE = Path(__file__).parent
OPTIONS = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "--outDir", "."]


def test_types_that_are_generated_fit_the_service(service: Service, document: Path, tmp_path: Path) -> None:
    node, _ = ensure_node()
    modules = ensure_modules("openapi-typescript", HERE / "package.json") / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "client.ts").write_bytes((HERE / "client.ts").read_bytes())
    for program in (
        [modules / "openapi-typescript/bin/cli.js", document, "--output", "schema.d.ts"],
        [modules / "typescript/bin/tsc", *OPTIONS, "client.ts"],
        ["client.js", service.url],
    ):
        done = subprocess.run([node, *program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
