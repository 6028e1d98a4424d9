"""The interfaces of dependencies that may change in any release, because they are private or not documented.

`pyproject.toml` bounds the versions of these packages. When a bound is raised, this test shows which interfaces are
missing. A new use of such an interface has to be listed here.
"""

import ast
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
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
PACKAGES = [frozenset({"uvicorn"}), frozenset({"prometheus_client"}), frozenset({"aiobotocore", "botocore"})]

IMPORTS = {
    "aiobotocore.config.AioConfig",
    "aiobotocore.parsers.AioJSONParser",
    "aiobotocore.parsers.AioResponseParserFactory",
    "aiobotocore.session.AioSession",
    "prometheus_client.multiprocess.MultiProcessCollector",
    "prometheus_client.registry.Collector",
    "uvicorn.config.Config",
    "uvicorn.config.STARTUP_FAILURE",
    "uvicorn.server.ServerState",
}
"""The imports from modules of these packages. The names of the packages themselves are documented."""

MEMBERS: dict[type, set[str]] = {
    ServerState: {"connections", "default_headers", "tasks", "total_requests"},
    uvicorn.Server: {
        *("config", "default_headers", "handle_exit", "lifespan", "on_tick", "run", "serve"),
        *("server_state", "servers", "should_exit", "shutdown", "started", "startup"),
    },
    uvicorn.Config: {
        *("backlog", "bind_socket", "headers", "host", "lifespan", "loaded_app", "port", "ssl"),
        *("timeout_graceful_shutdown", "timeout_keep_alive", "workers"),
    },
    LifespanOn: {"config", "receive", "send", "should_exit", "shutdown", "startup", "state"},
    prometheus_client.Counter: {"_lock", "_metric_init", "_metrics", "_samples", "_value"},
    prometheus_client.Histogram: {"_buckets", "_lock", "_metric_init", "_metrics", "_samples", "_sum", "_upper_bounds"},
    prometheus_client.CollectorRegistry: {"_lock"},
    AioJSONParser: {"_handle_json_body"},
    AioResponseParserFactory: {"create_parser"},
}
"""The attributes and methods of each class that the service uses or overrides, found by their names.

uvicorn documents no members of its classes, and botocore none of its parsers. For Prometheus' client,
these are the names with a leading underscore. Elsewhere in the service, Ruff rejects such names.
"""

REDIS_MEMBERS: dict[type, set[str]] = {
    AbstractConnection: {"_parser", "_reader", "_writer", "can_read", "disconnect"},
    BaseParser: {"parse_error"},
}
"""The undocumented members of the Redis driver's classes that `stores/redis/connection.py` uses or overrides."""


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(file.read_text(encoding="utf-8")) for file in sorted(SERVICE.rglob("*.py"))]


def imports(tree: ast.Module, packages: frozenset[str]) -> Iterator[str]:
    """Yield the full names of everything that a module imports from packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in packages)


def bases(tree: ast.Module, packages: frozenset[str]) -> set[str]:
    """Return the names of the packages' classes that classes of a module extend."""
    names = {name.rpartition(".")[2] for name in imports(tree, packages)}
    found = [ast.unparse(base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return {base.rpartition(".")[2] for base in found if base.partition(".")[0] in names}


@cache
def used_names(packages: frozenset[str]) -> set[str]:
    """Return the names of all attributes used, and methods defined, in modules that use more than documented names."""
    nodes = (
        node
        for tree in trees()
        if bases(tree, packages) or any(name.count(".") > 1 for name in imports(tree, packages))
        for node in ast.walk(tree)
    )
    return {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for node in nodes
        if isinstance(node, ast.Attribute | ast.FunctionDef | ast.AsyncFunctionDef)
    }


def group(cls: type) -> frozenset[str]:
    """Return the packages of a class and of the related classes."""
    return next((one for one in PACKAGES if cls.__module__.partition(".")[0] in one), frozenset())


def members(cls: type) -> set[str]:
    """Return the names of a class's methods, and of the attributes that its methods set."""
    own = [base for base in cls.__mro__ if group(base) == group(cls)]
    sources = [ast.parse(textwrap.dedent(inspect.getsource(base))) for base in own]
    nodes = [node for source in sources for node in ast.walk(source) if isinstance(node, ast.Attribute)]
    assigned = {node.attr for node in nodes if isinstance(node.ctx, ast.Store)}
    return {name for name in assigned.union(*(vars(base) for base in own)) if not name.startswith("__")}


def test_imports_from_modules_of_these_packages_are_listed() -> None:
    found = {name for tree in trees() for packages in PACKAGES for name in imports(tree, packages)}
    assert {name for name in found if name.count(".") > 1} == IMPORTS


@pytest.mark.parametrize("cls", MEMBERS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_private_members_are_listed_and_exist(cls: type) -> None:
    used, existing = used_names(group(cls)), members(cls)
    if cls.__module__.startswith("prometheus_client"):
        used = {name for name in used if name.startswith("_")}
    assert MEMBERS[cls] - existing == set(), "missing in the installed version"
    assert used & existing == MEMBERS[cls]


def test_every_class_that_the_service_extends_is_listed() -> None:
    found = {name for tree in trees() for packages in PACKAGES for name in bases(tree, packages)}
    assert found <= {cls.__name__ for cls in MEMBERS}


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
    names = {"redis[hiredis]"} | {name.replace("_", "-") for packages in PACKAGES for name in packages}
    found = {line.partition(">")[0]: line for requirements in extras for line in requirements}
    assert [name for name in names if ",<" not in found[name]] == []
