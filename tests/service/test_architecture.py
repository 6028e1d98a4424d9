"""The structure of the code: the order of packages, their exports, and where frameworks and drivers belong."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tableside
from tableside import stores

ROOT = Path(tableside.__file__).parents[2]
SERVICE = ROOT / "service" / "tableside"
CLIENT = ROOT / "spark_client" / "tableside_client"
COMMANDS = ROOT / "spark_client" / "tableside_cli"
SPARK = ROOT / "spark_client" / "tableside_spark"
SCRIPTS = [ROOT / name for name in ("scripts", "tests/servers", "examples", "bench")]

ORDER = [
    {"core"},
    {"telemetry"},
    {"stores", "policies"},
    {"auth"},
    {"settings"},
    {"catalog"},
    {"http"},
    {"server"},
    {"app"},
    {"cli"},
    {"__main__"},
]
"""A package imports only from packages before it."""

CLIENT_ORDER = [
    {"versions"},
    {"state"},
    {"partitioning"},
    {"executor"},
    {"plan"},
    {"write"},
    {"table"},
    {"datasource", "multicast"},
]
"""The same for the Spark client, where every package may import `tableside_client`."""

"""The API of plug-ins. Removing or renaming one of these names breaks them."""

FRAMEWORKS = {"fastapi", "starlette", "uvicorn", "typer", "httpx"}
DRIVERS = {"rocksdict", "aioboto3", "aiobotocore", "boto3", "redis", "asyncpg", "psycopg"}
USES_REDIS = [("policies", "rate_limit", "shared")]
"""Replicas share credits through a Redis server. Its driver may not be installed."""


def modules(package: Path) -> list[Path]:
    return sorted(file for file in package.rglob("*.py") if "__pycache__" not in file.parts)


def name(file: Path, package: Path) -> tuple[str, ...]:
    """Return a module's name in parts, without the package's own."""
    parts = file.relative_to(package).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(file: Path, package: Path) -> Iterator[tuple[str, ...]]:
    """Return every imported name in parts. The last part of `from module import name` is the name."""
    own = (package.name, *file.relative_to(package).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = own[: len(own) - node.level + 1] if node.level else ()
            source = (*start, *(node.module.split(".") if node.module else ()))
            yield from ((*source, alias.name) for alias in node.names)


def of_service(file: Path) -> set[tuple[str, ...]]:
    """Return the imports of a module from the service, without `tableside`."""
    return {parts[1:] for parts in imported(file, SERVICE) if parts[0] == "tableside" and len(parts) > 1}


def tops(file: Path, package: Path) -> set[str]:
    """Return the top-level packages that a module imports."""
    return {parts[0] for parts in imported(file, package)}


def layer(part: str, order: list[set[str]] = ORDER) -> int:
    return next(index for index, parts in enumerate(order) if part in parts)


def test_packages_import_only_packages_before_them() -> None:
    found = [
        f"{'.'.join(name(file, SERVICE))} imports {'.'.join(parts)}"
        for file in modules(SERVICE)
        for own in name(file, SERVICE)[:1]
        for parts in of_service(file)
        if parts[0] not in (own, "__version__") and layer(parts[0]) >= layer(own)
    ]
    assert not found, "\n".join(found)


def test_client_packages_import_only_packages_before_them() -> None:
    for package, others in ((CLIENT, {"tableside_cli"}), (COMMANDS, set())):
        unwanted = {"tableside_spark", "pyspark"} | others
        assert [file.name for file in modules(package) if tops(file, package) & unwanted] == []
    found = []
    for file in modules(SPARK):
        own = next(iter(name(file, SPARK)), None)
        if own is None:
            continue
        ours = {parts[1] for parts in imported(file, SPARK) if parts[0] == "tableside_spark" and len(parts) > 1}
        before = set().union(*(CLIENT_ORDER[: layer(own, CLIENT_ORDER)])) | {own}
        found += [f"{file.relative_to(SPARK)} imports {other}" for other in ours - before]
    assert not found, "\n".join(sorted(found))


def test_the_design_page_and_its_picture_have_every_package_in_order() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    service, client = (_order(text) for text in re.findall(r"```text\n(\w+ < .*)\n```", page)[:2])
    assert [*service, {"__main__"}] == ORDER
    assert client == [{"tableside_client"}, {"versions"}, *CLIENT_ORDER[2:]]
    assert "`tableside_cli`" in page
    picture = (ROOT / "docs" / "images" / "packages.svg").read_text(encoding="utf-8")
    labels = re.findall(r'font-weight="600">([^<]+)<', picture)
    drawn = {part for label in labels for part in label.split(" · ")} - {"service (tableside)", "Spark client"}
    assert drawn == set().union(*service, *client, {"state", "tableside_cli"})


def _order(text: str) -> list[set[str]]:
    return [set(re.findall(r"\w+", part)) for part in text.split("<")]


def test_stores_import_only_what_plug_ins_may_import() -> None:
    found = [
        f"{file.relative_to(SERVICE)} imports {'.'.join(parts)}"
        for file in modules(SERVICE / "stores")
        for parts in of_service(file)
        if parts[0] != "stores" and not (parts[0] == "core" and len(parts) == 2)
    ]
    assert not found, "\n".join(found)


def test_packages_import_from_a_package_what_it_exports() -> None:
    """Except from `core`, whose exports are the API for stores, and from packages within a package."""
    packages = {name(file, SERVICE) for file in modules(SERVICE) if file.name == "__init__.py"}
    found = [
        f"{file.relative_to(SERVICE)} imports {'.'.join(parts)}"
        for file in modules(SERVICE)
        for parts in of_service(file)
        if parts[0] not in (*name(file, SERVICE)[:1], "core")
        and len(parts) > 2
        and parts[:-1] not in [*packages, *USES_REDIS]
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", [SERVICE, CLIENT, COMMANDS, SPARK, *SCRIPTS], ids=lambda package: package.name)
def test_there_are_no_import_cycles(package: Path) -> None:
    files = {(package.name, *name(file, package)): file for file in modules(package)}
    graph = {
        own: {target for parts in imported(file, package) for target in (parts, parts[:-1]) if target in files} - {own}
        for own, file in files.items()
    }
    # A module that imports a sibling through their package runs the package first in any case.
    for own, targets in graph.items():
        targets -= {own[:length] for length in range(len(own))}
    assert any(graph.values())
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(".".join(parts) for parts in error.args[1]))


def test_kinds_of_store_and_policies_are_independent() -> None:
    kinds = {reference.partition(":")[0].partition(".")[0] for reference in stores._KINDS.values()}
    policies = {part for file in modules(SERVICE / "policies") for part in name(file, SERVICE)[1:2]} - {"metrics"}
    assert kinds
    assert policies
    for file in modules(SERVICE / "stores") + modules(SERVICE / "policies"):
        home, own, *_ = (*name(file, SERVICE), "")
        others = (kinds if home == "stores" else policies) - {own}
        for parts in of_service(file):
            assert not (own and parts[0] == home and len(parts) > 1 and parts[1] in others), file.relative_to(SERVICE)


def test_the_service_and_the_client_meet_on_the_wire_only() -> None:
    """The command line has the commands of both."""
    for package in (CLIENT, COMMANDS, SPARK):
        assert [file.name for file in modules(package) if "tableside" in tops(file, package)] == []
    clients = {"tableside_client", "tableside_cli", "tableside_spark"}
    found = {(name(file, SERVICE), *(tops(file, SERVICE) & clients)) for file in modules(SERVICE)}
    assert {parts for parts in found if len(parts) > 1} == {(("cli",), "tableside_cli")}


def test_frameworks_and_drivers_stay_in_their_packages() -> None:
    found = [f"{file.relative_to(SERVICE)} imports {', '.join(sorted(misplaced(file)))}" for file in modules(SERVICE)]
    assert [fault for fault in found if not fault.endswith(" imports ")] == []


def misplaced(file: Path) -> set[str]:
    """Return the frameworks and drivers that a module imports against the rules."""
    own = name(file, SERVICE)
    if not own:
        return set()
    # Authentication reads ASGI scopes and fetches keys.
    frameworks = FRAMEWORKS if layer(own[0]) < layer("http") and own[0] != "auth" else set()
    drivers = set() if own[0] == "stores" else DRIVERS - ({"redis"} if own in USES_REDIS else set())
    return tops(file, SERVICE) & (frameworks | drivers)
