"""The drill: a backup during writes, the loss of the service and its data, and a restoration."""

import itertools
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from documentation.blocks import blocks
from support.running import Service, running
from support.waiting import WAIT_MAX_S, until
from tableside.cli import app

pytestmark = pytest.mark.server

TOKEN = {"writer": "w", "sequence": 1}


def run(command: str) -> str:
    result = CliRunner().invoke(app, command.split()[1:])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def batch(service: Service, table: str, *operations: dict[str, Any]) -> list[dict[str, Any]]:
    response = httpx.post(
        f"{service.url}/v1/tables/{table}/batch", json={"operations": [*operations]}, timeout=WAIT_MAX_S
    )
    results: list[dict[str, Any]] = response.raise_for_status().json()["results"]
    return results


def test_every_write_acknowledged_before_a_backup_survives_the_loss_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [commands] = [block.text.splitlines() for block in blocks("docs/operations.md") if "tableside backup" in block.text]
    monkeypatch.chdir(tmp_path)
    config, acknowledged = tmp_path / "tableside.yaml", 0
    store = {"kind": "rocksdb", "path": "data", "write_buffer_bytes": 2**20}
    table = {"store": "local", "generations": True}
    config.write_text(json.dumps({"stores": {"local": store}, "tables": {"t": table}}))

    def write_until_killed(service: Service) -> None:
        nonlocal acknowledged
        try:
            for start in itertools.count(0, 100):
                numbers = range(start, start + 100)
                batch(service, "t", *({"op": "put", "key": f"{n}", "value": {"n": n, "x": "x" * 500}} for n in numbers))
                acknowledged = numbers.stop
        except httpx.TransportError:
            pass

    with running(tmp_path, config) as service:
        special: list[dict[str, Any]] = [
            {"op": "put", "key": "expiring", "value": {}, "ttl_s": 3600},
            {"op": "update", "key": "counted", "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "token": TOKEN},
            {"op": "put", "key": "ordered", "value": {"at": 9}, "order": 9},
        ]
        generations = f"{service.url}/v1/tables/t/generations"
        number = httpx.post(generations, json={}).json()["generation"]
        batch(service, f"t@{number}", {"op": "put", "key": "loaded", "value": {}})
        httpx.post(f"{generations}/{number}/activate", timeout=WAIT_MAX_S).raise_for_status()
        batch(service, "t", *special)
        reads = [{"op": "get", "key": key} for key in ("loaded", "expiring", "counted", "ordered")]
        before = batch(service, "t", *reads)
        assert [result["status"] for result in before] == [200] * 4
        writing = threading.Thread(target=write_until_killed, args=[service])
        writing.start()
        until(lambda: acknowledged > 5000)
        acknowledged_before = acknowledged
        [line] = run(commands[0]).splitlines()
        later = acknowledged
        until(lambda: acknowledged > later)
        service.kill()
        writing.join()
    shutil.rmtree(tmp_path / "data")
    run(commands[1].replace("backups/local/20261128T120000Z", line.partition(":")[0]))
    with running(tmp_path, config) as service:
        assert batch(service, "t", *reads) == before
        [counted, ordered] = batch(service, "t", special[1], {**special[2], "value": {"at": 1}, "order": 1})
        assert (counted["replayed"], ordered["superseded"]) == (True, True)
        [*found] = batch(service, "t", *({"op": "get", "key": f"{n}"} for n in range(acknowledged_before)))
        assert [result["value"]["n"] for result in found] == [*range(acknowledged_before)]
    print(f"{acknowledged_before} records acknowledged before the backup. {line}")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("backup backups --store other", 2, "--store other: the configuration has no RocksDB store with this name"),
        ("backup backups --store m", 2, "--store m: the configuration has no RocksDB store with this name"),
        ("backup backups --store local", 1, "data has no RocksDB database"),
        ("restore backups --store local", 1, "backups is not a backup"),
        ("backup backups --store full", 1, "full cannot be read: Corruption: CURRENT file"),
    ],
)
def test_a_failure_is_one_line(
    arguments: str, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("full").mkdir()
    Path("full/CURRENT").touch()
    stores = {"local": {"kind": "rocksdb", "path": "data"}, "full": {"kind": "rocksdb", "path": "full"}}
    Path("c.yaml").write_text(json.dumps({"stores": {**stores, "m": {"kind": "memory"}}}))
    result = CliRunner().invoke(app, [*arguments.split(), "--config", "c.yaml"])
    assert (result.exit_code, result.stdout) == (code, "")
    [line] = result.stderr.splitlines()
    assert message in line
