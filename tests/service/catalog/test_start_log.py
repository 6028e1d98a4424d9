"""The log at start: where each store keeps its records, without secrets, and which tables there are."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.telemetry.lines import logged
from support.running import Service
from tableside import __version__
from tableside.catalog import log_start
from tableside.core.urls import url_place
from tableside.settings import validate

SECRET = "hunter2"
PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "memory": ({"kind": "memory"}, "in the memory of this process"),
    "rocksdb": ({"kind": "rocksdb", "path": "./data"}, str(Path.cwd() / "data")),
    "redis": ({"kind": "redis", "url": f"redis://me:{SECRET}@cache:6380/3"}, "cache:6380/3"),
    "postgres": (
        {"kind": "postgres", "dsn": f"postgresql://me:{SECRET}@one:1,two:2/orders?application_name={SECRET}"},
        "one:1,two:2/orders",
    ),
    "aws": ({"kind": "dynamodb", "region": "eu-west-1"}, "region eu-west-1"),
    "default": ({"kind": "dynamodb"}, "the region of the environment"),
    "local": (
        {"kind": "dynamodb", "region": "eu-west-1", "endpoint_url": f"http://me:{SECRET}@127.0.0.1:8000"},
        "127.0.0.1:8000",
    ),
    "shards": ({"kind": "partitioned", "partitions": ["memory", "rocksdb"]}, "2 stores"),
}


def started(tables: list[str]) -> list[str]:
    settings = validate({"stores": {name: store for name, (store, _) in PLACES.items()}})
    with logged() as lines:
        log_start(settings, tables)
    assert SECRET not in lines.text
    return lines.events


def test_the_place_of_each_store_is_logged_without_secrets() -> None:
    assert started([]) == [
        f"tableside {__version__}, no authentication",
        *(f"store {name}: {store['kind']}, {place}" for name, (store, place) in PLACES.items()),
        "tables: 0",
    ]


@pytest.mark.parametrize(
    "password", [f"1/{SECRET}", f"1?{SECRET}", f"1#{SECRET}", f"{SECRET}/1"], ids=["slash", "query", "hash", "after"]
)
def test_a_password_that_is_not_encoded_is_not_logged(password: str) -> None:
    place = url_place(f"postgresql://me:{password}@db/orders")
    assert SECRET not in place
    assert "me" not in place.split()


def test_the_service_logs_its_stores_its_tables_and_the_addresses_of_its_pages(service: Service) -> None:
    events = [json.loads(line)["event"] for line in service.log.read_text().splitlines() if line.startswith("{")]
    assert f"store local: rocksdb, {service.directory / 'tableside-data'}" in events
    assert any(event.startswith("tables: ") for event in events)
    pages = [event.removeprefix("page: ") for event in events if event.startswith("page: ")]
    assert pages == [f"{service.url}/docs", f"{service.url}/console"]
    assert [httpx.get(page).status_code for page in pages] == [200, 200]
