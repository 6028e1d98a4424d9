"""A running service, and its OpenAPI document as a file for generators of clients."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.running import Service, running

CONFIG = "{stores: {local: {kind: memory}}, tables: {people: {store: local}}}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a table in memory."""
    directory = tmp_path_factory.mktemp("service")
    config = directory / "tableside.yaml"
    config.write_text(CONFIG)
    with running(directory, config) as started:
        yield started


@pytest.fixture(scope="module")
def document(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document that the service serves."""
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    path.write_bytes(httpx.get(f"{service.url}/openapi.json").raise_for_status().content)
    return path
