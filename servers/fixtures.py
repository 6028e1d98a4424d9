"""The servers as pytest fixtures: each starts when a test first asks for it, and ends with the test run.

Tests share them, so each takes table names, key prefixes or schemas of its own.
"""

from collections.abc import Iterator

import pytest

from .dynamodb import dynalite, dynamodb_local
from .kafka import kafka
from .postgres import postgres
from .redis import redis, redis_cluster


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis."""
    with redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def redis_cluster_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The URLs of the three masters of a Redis Cluster."""
    with redis_cluster(tmp_path_factory.mktemp("redis-cluster")) as urls:
        yield urls


@pytest.fixture(scope="session")
def postgres_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a PostgreSQL."""
    with postgres(tmp_path_factory.mktemp("postgres")) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def dynamodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of Amazon's DynamoDB Local."""
    with dynamodb_local(tmp_path_factory.mktemp("dynamodb")) as url:
        yield url


@pytest.fixture(scope="session")
def dynalite_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of dynalite."""
    with dynalite(tmp_path_factory.mktemp("dynalite")) as url:
        yield url


@pytest.fixture(scope="session")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka broker, `host:port`."""
    with kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address
