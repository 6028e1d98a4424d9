"""Go that uses the packages that oapi-codegen and ogen generate from the document compiles, and works."""

import subprocess
from pathlib import Path

import pytest

from servers.install import find_command
from support.running import Service

pytestmark = [pytest.mark.daily, pytest.mark.server]

HERE = Path(__file__).parent
OAPI_CODEGEN = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
OGEN = "github.com/ogen-go/ogen/cmd/ogen@v1.24.0"


@pytest.mark.parametrize(
    ("program", "generator"),
    [
        (
            "oapi_codegen.go",
            [OAPI_CODEGEN, "-package", "client", "-generate", "types,client", "-o", "client/client.go"],
        ),
        ("ogen.go", [OGEN, "-package", "client", "-target", "client"]),
    ],
)
def test_a_generated_package_fits_the_service(
    service: Service, document: Path, tmp_path: Path, program: str, generator: list[str]
) -> None:
    go = find_command("go")
    assert go is not None, "go is missing: install it"
    (tmp_path / "client").mkdir()
    (tmp_path / "main.go").write_bytes((HERE / program).read_bytes())
    for command in (
        ["mod", "init", "generated"],
        ["run", *generator, document],
        ["mod", "tidy"],
        ["run", ".", service.url],
    ):
        done = subprocess.run([go, *command], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
