"""Examples with a store's own tools, such as psql, work with the real store."""

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from documentation.blocks import blocks
from scripts.bootstrap import ROOT
from servers.install import ensure_command
from support.running import Service, running
from tableside_client import Client

pytestmark = pytest.mark.server

REDIS, POSTGRES, REPLACING = "docs/stores/redis.md", "docs/stores/postgres.md", "docs/replacing-a-table.md"


def shown(page: str, language: str, containing: str) -> str:
    [text] = [block.text for block in blocks(page) if block.language == language and containing in block.text]
    return text


def value(service: Service, table: str, key: str) -> Any:
    return httpx.get(f"{service.url}/v1/tables/{table}/records/{key}").raise_for_status().json()


def psql(dsn: str, statements: str) -> str:
    options = ["--set=ON_ERROR_STOP=1", "--tuples-only", "--quiet", "--command", statements]
    command = [str(ensure_command("psql", "postgresql-client")), dsn, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def orders_dsn(postgres_dsn: str) -> str:
    """A separate schema for tables with the names of the page."""
    name = f"page_{os.urandom(4).hex()}"
    psql(postgres_dsn, f"CREATE SCHEMA {name}")
    return f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}options=-csearch_path%3D{name}"


@pytest.fixture(scope="module")
def profiles(orders_dsn: str) -> str:
    """The output of psql for the statements about documents."""
    return psql(orders_dsn, shown(POSTGRES, "sql", "CREATE TABLE profiles"))


@pytest.fixture(scope="module")
def service(
    redis_url: str, orders_dsn: str, profiles: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service with the tables of the page. The page's statements created the PostgreSQL tables."""
    psql(orders_dsn, shown(POSTGRES, "sql", "CREATE TABLE aircraft"))
    stores = {"cache": {"kind": "redis", "url": redis_url}, "orders": {"kind": "postgres", "dsn": orders_dsn}}
    tables = {
        "visits": {"store": "cache", "key": {"user": "string", "day": "integer"}},
        "profiles": {"store": "orders"},
        "prices": {"store": "orders", "create": True, "generations": True, "generations_kept": 0},
        **yaml.safe_load(shown(POSTGRES, "yaml", "layout: columns"))["tables"],
    }
    directory = tmp_path_factory.mktemp("page")
    file = directory / "tableside.yaml"
    file.write_text(yaml.safe_dump({"stores": stores, "tables": tables}, sort_keys=False))
    with running(directory, file) as started:
        yield started


def test_the_contents_of_redis(service: Service, redis_url: str) -> None:
    [(line, printed)] = re.findall(r"^\$ redis-cli (.*)\n(.*)$", shown(REDIS, "console", "redis-cli"), re.MULTILINE)
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


def test_a_manually_created_table_of_documents(service: Service, profiles: str) -> None:
    assert "1815" in profiles
    assert value(service, "profiles", "ada") == {"n": 1, "born": 1815}
    about = httpx.get(f"{service.url}/v1/tables/profiles").json()["capabilities"]
    assert about["ttl"]
    assert about["tokens"]


def test_a_manually_created_table_of_columns(service: Service) -> None:
    text = (ROOT / POSTGRES).read_text(encoding="utf-8")
    said = re.search(r"The value of `N10156` is then `(\{.*?\})`", text)
    assert said is not None
    assert value(service, "aircraft", "N10156") == yaml.safe_load(said[1])


def test_a_view_of_the_current_generation(service: Service, orders_dsn: str) -> None:
    def read() -> list[str]:
        query = "SELECT key || ' ' || (value->>'cents') FROM prices_current ORDER BY key"
        return psql(orders_dsn, query).splitlines()[:-1]

    with Client(service.url) as client:
        prices = client.table("prices")
        prices.load([("apple", {"cents": 1}), ("pear", {"cents": 2})])
        prices.replace([("apple", {"cents": 3})])
        psql(orders_dsn, shown(REPLACING, "sql", "CREATE VIEW prices_current"))
        assert read() == [" apple 3"]
        prices.replace([("apple", {"cents": 4}), ("plum", {"cents": 5})])
        prices.delete("plum", token="sold/1")
        assert read() == [" apple 4"]
