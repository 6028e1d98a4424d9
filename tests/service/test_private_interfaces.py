"""The interfaces of dependencies that may change in any release, because they are private or not documented.

`pyproject.toml` bounds the versions of these packages. When a bound is raised, this test shows which interfaces are
missing.
"""

import ast
import inspect
import re
import textwrap
import tomllib
from pathlib import Path

import prometheus_client
import pytest
import uvicorn
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection
from uvicorn.lifespan.on import LifespanOn
from uvicorn.server import ServerState

import tableside

SERVICE = Path(tableside.__file__).parent

MEMBERS: dict[type, set[str]] = {
    ServerState: {"connections", "default_headers", "tasks", "total_requests"},
    uvicorn.Server: {
        *("config", "default_headers", "handle_exit", "lifespan", "on_tick", "run", "serve"),
        *("server_state", "servers", "should_exit", "shutdown", "started", "startup"),
    },
    uvicorn.Config: {
        *("backlog", "headers", "host", "lifespan", "loaded_app", "port", "ssl"),
        *("timeout_graceful_shutdown", "timeout_keep_alive", "workers"),
    },
    LifespanOn: {"config", "receive", "send", "should_exit", "shutdown", "startup", "state"},
    prometheus_client.Counter: {"_lock", "_metric_init", "_metrics", "_samples", "_value"},
    prometheus_client.Histogram: {"_buckets", "_lock", "_metric_init", "_metrics", "_samples", "_sum", "_upper_bounds"},
    prometheus_client.CollectorRegistry: {"_lock"},
    AioJSONParser: {"_handle_json_body"},
    AioResponseParserFactory: {"create_parser"},
}
"""The attributes and methods of each class that the service uses or overrides.

uvicorn documents no members of its classes, and botocore none of its parsers. For Prometheus' client,
these are the names with a leading underscore. Elsewhere in the service, Ruff rejects such names.
"""

REDIS_MEMBERS: dict[type, set[str]] = {
    AbstractConnection: {"_parser", "_reader", "_writer", "can_read", "disconnect"},
    BaseParser: {"parse_error"},
}
"""The undocumented members of the Redis driver's classes that `stores/redis/connection.py` uses or overrides."""


def members(cls: type) -> set[str]:
    """Return the names of a class's methods, and of the attributes that its methods set."""
    own = [base for base in cls.__mro__ if base is not object]
    sources = [ast.parse(textwrap.dedent(inspect.getsource(base))) for base in own]
    nodes = [node for source in sources for node in ast.walk(source) if isinstance(node, ast.Attribute)]
    assigned = {node.attr for node in nodes if isinstance(node.ctx, ast.Store)}
    return {name for name in assigned.union(*(vars(base) for base in own)) if not name.startswith("__")}


@pytest.mark.parametrize("cls", MEMBERS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_private_members_exist_in_the_installed_version(cls: type) -> None:
    assert MEMBERS[cls] - members(cls) == set()


@pytest.mark.parametrize("cls", REDIS_MEMBERS, ids=lambda cls: cls.__name__)
def test_the_members_of_the_redis_driver_exist_and_are_used(cls: type) -> None:
    driver = (SERVICE / "stores" / "redis" / "connection.py").read_text(encoding="utf-8")
    sources = "".join(inspect.getsource(base) for base in cls.__mro__ if base.__module__.startswith("redis."))
    for name in REDIS_MEMBERS[cls]:
        assert re.search(rf"(self\.|def ){name}\b", sources), "missing in the installed version"
        assert re.search(rf"\b{name}\b", driver), name


def test_the_versions_of_these_packages_have_upper_bounds() -> None:
    project = tomllib.loads((SERVICE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    names = ("redis[hiredis]", "uvicorn", "prometheus-client", "aiobotocore", "botocore")
    found = {line.partition(">")[0]: line for requirements in extras for line in requirements}
    assert [name for name in names if ",<" not in found[name]] == []
