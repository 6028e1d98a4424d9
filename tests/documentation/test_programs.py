"""What docs/stores.md shows with a store's own tools, done with these tools against the real store."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from documentation.blocks import blocks
from running import Service, running
from servers.install import ensure_command

PAGE = "docs/stores.md"


def shown(language: str, containing: str) -> str:
    [text] = [block.text for block in blocks(PAGE) if block.language == language and containing in block.text]
    return text


def configured(directory: Path, store: dict[str, Any], tables: dict[str, Any]) -> Path:
    file = directory / "tableside.yaml"
    file.write_text(yaml.safe_dump({"stores": {"orders": store}, "tables": tables}, sort_keys=False))
    return file


def value(service: Service, table: str, key: str) -> Any:
    return httpx.get(f"{service.url}/v1/tables/{table}/records/{key}").raise_for_status().json()


def test_what_redis_holds(redis_url: str, tmp_path: Path) -> None:
    [(line, printed)] = re.findall(r"^\$ redis-cli (.*)\n(.*)$", shown("console", "redis-cli"), re.MULTILINE)
    tables = {"visits": {"store": "orders", "key": {"user": "string", "day": "integer"}}}
    with running(tmp_path, configured(tmp_path, {"kind": "redis", "url": redis_url}, tables)) as service:
        put = httpx.put(f"{service.url}/v1/tables/visits/records/user-1/5", json={"n": 1})
        assert put.status_code == 204
        command = [ensure_command("redis-cli", "redis-tools"), "-u", redis_url, "--no-raw", *line.split()]
        held = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        httpx.delete(f"{service.url}/v1/tables/visits/records/user-1/5")
    shape = r'"(\{\\"n\\":1\})((?:\\r|\\n|\\t| ){16})"'
    ours, said = re.fullmatch(shape, held), re.fullmatch(shape, printed)
    assert ours is not None
    assert said is not None
    assert ours[1] == said[1]


@pytest.fixture
def orders_dsn(postgres_dsn: str) -> str:
    """A schema of its own for tables with the names of the page."""
    psql = ensure_command("psql", "postgresql-client")
    name = f"page_{os.urandom(4).hex()}"
    subprocess.run([psql, postgres_dsn, "--quiet", "--command", f"CREATE SCHEMA {name}"], check=True)
    return f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}options=-csearch_path%3D{name}"


def psql(dsn: str, statements: str) -> str:
    options = ["--set=ON_ERROR_STOP=1", "--tuples-only", "--quiet", "--command", statements]
    command = [str(ensure_command("psql", "postgresql-client")), dsn, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_table_of_documents_made_by_hand(orders_dsn: str, tmp_path: Path) -> None:
    assert "1815" in psql(orders_dsn, shown("sql", "CREATE TABLE profiles"))
    store = {"kind": "postgres", "dsn": orders_dsn}
    with running(tmp_path, configured(tmp_path, store, {"profiles": {"store": "orders"}})) as service:
        assert value(service, "profiles", "ada") == {"n": 1, "born": 1815}
        about = httpx.get(f"{service.url}/v1/tables/profiles").json()["capabilities"]
        assert about["ttl"]
        assert about["tokens"]


def test_a_table_of_columns_made_by_hand(orders_dsn: str, tmp_path: Path) -> None:
    psql(orders_dsn, shown("sql", "CREATE TABLE aircraft"))
    tables = yaml.safe_load(shown("yaml", "layout: columns"))["tables"]
    text = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    said = re.search(r"The value of `N10156` is then `(\{.*?\})`", text)
    assert said is not None
    with running(tmp_path, configured(tmp_path, {"kind": "postgres", "dsn": orders_dsn}, tables)) as service:
        assert value(service, "aircraft", "N10156") == yaml.safe_load(said[1])
