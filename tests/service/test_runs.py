"""The companion `TABLE@runs` of every kind of table, in which jobs remember what they have written."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from support.dynamodb_tables import PATIENCE_S
from support.kinds import EVERY, Kind, kind
from support.running import running
from tableside_cli import app
from tableside_client import Client
from tableside_client.runs import EVENTS_KEY, Run, scan_runs
from tableside_spark.write.run_memory import RunMemory
from tableside_spark.write.summary import WriteSummary

pytestmark = pytest.mark.server

TABLE, RUNS = "/v1/tables/t/records", "/v1/tables/t@runs/records"


@pytest.fixture(scope="module", params=EVERY)
def used(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    return kind(request.param, request, tmp_path_factory.mktemp(request.param))


@contextlib.contextmanager
def served(directory: Path, used: Kind, **table: object) -> Iterator[httpx.Client]:
    config = directory / "tableside.yaml"
    config.write_text(json.dumps(used.configuration(deadline_s=PATIENCE_S, **table)))
    with (
        running(directory, config, environment=used.environment) as service,
        httpx.Client(base_url=service.url, timeout=2 * PATIENCE_S) as http,
    ):
        yield http


def test_a_companion_keeps_records_apart_from_its_table(used: Kind, tmp_path: Path) -> None:
    with served(tmp_path, used) as http:
        first = http.put(f"{RUNS}/a", json={"n": 1}, headers={"If-None-Match": "*"})
        assert first.status_code == 201, first.text
        assert http.put(f"{RUNS}/a", json={"n": 2}, headers={"If-None-Match": "*"}).status_code == 412
        assert http.put(f"{RUNS}/a", json={"n": 2}, headers={"If-Match": first.headers["ETag"]}).status_code == 204
        found = http.get(f"{RUNS}/a")
        assert found.json() == {"n": 2}
        assert "Tableside-Expires-At" in found.headers
        assert http.get(f"{TABLE}/a").status_code == 404
        assert [record["key"] for record in http.get(RUNS).json()["records"]] == ["a"]
        assert run_twice(str(http.base_url)) == 1
        with Client(str(http.base_url)) as client:
            [run] = scan_runs(client.table("t@runs"))
        assert (run.token, run.rows, run.first_event, run.last_event) == ("daily/ü", 1, 1, 2)
        assert "Tableside-Expires-At" not in http.get(f"{RUNS}/{EVENTS_KEY}").headers
        assert http.get(TABLE).json()["records"] == []
        assert [table["name"] for table in http.get("/v1/tables").json()["tables"]] == ["t"]


def run_twice(url: str) -> int:
    """Run a job twice under one token, and return how often it was sent."""
    sent: list[WriteSummary] = []

    def send() -> WriteSummary:
        sent.append(WriteSummary(applied=1))
        return sent[-1]

    with Client(url) as client:
        memory = RunMemory(client.table("t@runs"), "t", 100)
        for _ in range(2):
            memory.once(Run("daily/ü", "put"), "exact", send, WriteSummary)
    return len(sent)


def test_without_create_a_companion_needs_its_own_table_in_postgresql(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path, kind("postgres-columns", request, tmp_path), create=False) as http:
        missing = http.put(f"{RUNS}/a", json={})
        assert (missing.status_code, missing.json()["code"]) == (404, "table_not_found")
        assert "_ts_runs" in missing.json()["detail"]
        assert run_twice(str(http.base_url)) == 2
        assert "table t remembers no runs, so daily/ü may be sent again" in caplog.text
        listed = CliRunner().invoke(app, ["runs", "t", "--url", str(http.base_url)])
        assert (listed.exit_code, listed.output) == (0, "")
        assert CliRunner().invoke(app, ["runs", "absent", "--url", str(http.base_url)]).exit_code == 1


def test_a_companion_of_a_table_that_a_write_creates_is_not_a_table_after_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    stores = {"s": {"kind": "rocksdb", "path": str(tmp_path / "data")}}
    config.write_text(json.dumps({"stores": stores, "default_store": "s", "auto_create": True}))
    with running(tmp_path, config) as service, httpx.Client(base_url=service.url) as http:
        assert http.get(f"{RUNS}/a").status_code == 404
        assert http.put(f"{RUNS}/a", json={}).status_code == 204
        assert http.put(f"{TABLE}/b", json={}).status_code == 204
    with running(tmp_path, config) as service, httpx.Client(base_url=service.url) as http:
        assert [table["name"] for table in http.get("/v1/tables").json()["tables"]] == ["t"]
        assert http.get(f"{RUNS}/a").json() == {}
