"""A Python client that openapi-python-client generates from the document has every operation, and works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import bootstrap
from scripts.bootstrap import ROOT
from servers.install import ensure_folder
from support.running import Service

pytestmark = [pytest.mark.daily, pytest.mark.server]

GENERATOR = ROOT / "requirements" / "openapi-python-client.txt"

CONFIG = """
post_hooks: []
content_type_overrides: {application/vnd.apache.arrow.stream: application/octet-stream}
"""

PROGRAM = """
import sys
from generated import Client
from generated.api.batches import apply_batch
from generated.api.records import get_record, patch_record, put_record
from generated.models import Batch, Changes, Problem, UpdateRequest, Value

client = Client(sys.argv[1])

assert get_record.sync_detailed("people", "ada", client=client).status_code == 404
missing = get_record.sync("people", "ada", client=client)
assert isinstance(missing, Problem) and missing.code == "record_not_found" and not missing.retriable

put = put_record.sync_detailed("people", "ada", client=client, body=Value.from_dict({"name": "Ada"}))
assert put.status_code == 204
etag = put.headers["etag"]
assert get_record.sync("people", "ada", client=client).to_dict() == {"name": "Ada"}

body = UpdateRequest(update=Changes.from_dict({"$inc": {"visits": 1}}))
assert patch_record.sync_detailed("people", "ada", client=client, body=body, if_match=etag).status_code == 204
refused = patch_record.sync_detailed("people", "ada", client=client, body=body, if_match=etag)
assert refused.status_code == 412 and refused.parsed.code == "precondition_failed"
assert get_record.sync("people", "ada", client=client).to_dict() == {"name": "Ada", "visits": 1}

operations = [
    {"op": "put", "key": "grace", "value": {"n": 1}},
    {"op": "update", "key": "alan", "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "return": True},
    {"op": "get", "key": "grace"},
    {"op": "delete", "key": "ada"},
]
batch = apply_batch.sync("people", client=client, body=Batch.from_dict({"operations": operations}))
assert [one.status for one in batch.results] == [204, 201, 200, 204]
assert [batch.results[n].value.to_dict() for n in (1, 2)] == [{"n": 1}, {"n": 1}]
"""


@pytest.fixture(scope="module")
def client(document: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a package `generated`."""
    folder = tmp_path_factory.mktemp("client")
    config = folder / "config.yaml"
    config.write_text(CONFIG)
    generator = ensure_folder("openapi-python-client", (GENERATOR,), _install)
    arguments: list[str | Path] = [
        "--path",
        document,
        "--config",
        config,
        "--output-path",
        folder / "generated",
        "--meta",
        "none",
    ]
    _run(generator, "-m", "openapi_python_client", "generate", "--fail-on-warning", *arguments)
    return folder


def test_the_client_has_every_operation(document: Path, client: Path) -> None:
    paths = json.loads(document.read_bytes())["paths"]
    operations = {one["operationId"] for item in paths.values() for one in item.values() if "operationId" in one}
    assert operations == {path.stem for path in client.glob("generated/api/*/*.py")} - {"__init__"}


def test_the_client_reads_and_writes_records(service: Service, client: Path) -> None:
    _run(client, "-c", PROGRAM, service.url)


def _install(folder: Path) -> None:
    arguments = ["--require-hashes", "--requirement", str(GENERATOR), "--target", str(folder)]
    bootstrap.step("installing openapi-python-client", [*bootstrap.pip(bootstrap.UV.exists()), *arguments])


def _run(path: Path, *arguments: str | Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
