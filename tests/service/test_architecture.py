"""Imports point one way, and the service and the client meet on the wire only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tableside
from tableside import stores

ROOT = Path(tableside.__file__).parents[2]
SERVICE = ROOT / "service" / "tableside"
CLIENT = ROOT / "spark_client" / "tableside_spark"

ORDER = [
    ["caller", "errors", "tallies", "tracing"],
    ["in_flight", "values"],
    ["updates"],
    ["operations"],
    ["keys", "placement"],
    ["known", "store"],
    ["transition", "ranges", "together", "within"],
    ["compare_and_set", "directions", "measure"],
    ["stores", "policies"],
    ["table"],
    ["settings"],
    ["replicas"],
    ["stack"],
    ["entry"],
    ["catalog", "reloading"],
    [
        "answering",
        "draining",
        "exposition",
        "hang_ups",
        "in_pieces",
        "issuers",
        "listening",
        "notes",
        "rights",
        "tls",
        "wire",
        "framing",
        "unread",
    ],
    ["auth", "door", "hosts", "http_metrics"],
    ["telemetry"],
    ["routes"],
    ["console", "exchange", "openapi", "probes", "protocol"],
    ["edge", "serving"],
    ["app", "workers"],
    ["cli"],
]
"""What may import what: each only from those before it. A module that is not here has no place yet."""


def is_command_line(part: str) -> bool:
    return part.startswith("cli") or part == "__main__"


def layer(part: str) -> int:
    """Return the place in the order of a module or of a package's modules; the command line is last."""
    part = "cli" if is_command_line(part) else part
    places = [place for place, parts in enumerate(ORDER) if part in parts]
    assert places, f"{part} has no place in the order yet"
    return places[0]


def modules(package: Path) -> list[Path]:
    return sorted(file for file in package.rglob("*.py") if "__pycache__" not in file.parts)


def name(file: Path, package: Path) -> tuple[str, ...]:
    """Return a module's name, in parts, without the package's own."""
    parts = file.relative_to(package).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(file: Path, package: Path) -> Iterator[tuple[str, ...]]:
    """Return every name that a module imports, in full and in parts; what it takes from a module is the last part."""
    within = (package.name, *file.relative_to(package).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = within[: len(within) - node.level + 1] if node.level else ()
            source = (*start, *(node.module.split(".") if node.module else ()))
            yield from ((*source, alias.name) for alias in node.names)


def inner(file: Path) -> set[tuple[str, ...]]:
    """Return what a module of the service imports of the service."""
    return {parts[1:] for parts in imported(file, SERVICE) if parts[0] == "tableside" and len(parts) > 1}


def tops(file: Path, package: Path) -> set[str]:
    """Return the packages that a module imports anything of."""
    return {parts[0] for parts in imported(file, package)}


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_a_module_imports_from_its_left_only() -> None:
    found = [fault for file in modules(SERVICE) for fault in out_of_order(file)]
    assert not found, "\n".join(found)


def out_of_order(file: Path) -> Iterator[str]:
    """Return what a module imports that does not stand before it in the order."""
    own = ".".join(name(file, SERVICE))
    for parts in inner(file):
        other = parts[0]
        if not own:
            yield f"the package itself imports {other}"
            continue
        first = own.partition(".")[0]
        if other in (first, "__version__") or (is_command_line(first) and is_command_line(other)):
            continue
        if layer(other) >= layer(first):
            yield f"{own} imports {'.'.join(parts)}"


def test_every_module_has_a_place_in_the_order() -> None:
    for file in modules(SERVICE):
        for part in name(file, SERVICE)[:1]:
            layer(part)


def test_kinds_of_store_and_policies_do_not_know_each_other() -> None:
    kinds = {reference.partition(":")[0].partition(".")[0] for reference in stores._KINDS.values()}
    policies = {part for file in modules(SERVICE / "policies") for part in name(file, SERVICE)[1:2]}
    assert kinds
    assert policies
    for file in modules(SERVICE / "stores") + modules(SERVICE / "policies"):
        home, own, *_ = (*name(file, SERVICE), "")
        others = (kinds if home == "stores" else policies) - {own}
        for parts in inner(file):
            assert parts[0] != {"stores": "policies", "policies": "stores"}[home], relative(file)
            assert not (parts[0] == home and len(parts) > 1 and parts[1] in others), relative(file)


def test_the_service_does_not_import_the_client() -> None:
    """The command line may use it."""
    files = [file for file in modules(SERVICE) if not any(map(is_command_line, name(file, SERVICE)))]
    assert [relative(file) for file in files if "tableside_spark" in tops(file, SERVICE)] == []


def test_the_client_does_not_import_the_service() -> None:
    assert modules(CLIENT)
    assert [relative(file) for file in modules(CLIENT) if "tableside" in tops(file, CLIENT)] == []


FRAMEWORKS = {"fastapi", "starlette", "uvicorn", "typer", "pyarrow", "httpx"}
DRIVERS = {"rocksdict", "aioboto3", "aiobotocore", "boto3", "redis", "asyncpg", "psycopg"}
TOLD_BY_REDIS = [
    *(("policies", "cache", module) for module in ("link", "hearing", "telling")),
    ("policies", "rate_limit", "shared"),
]
"""Caches of several replicas tell each other what was written by a Redis, and replicas share credits by one.

It need not hold any records; what the driver raises there is told apart.
"""


def test_frameworks_stay_at_the_edge() -> None:
    """What the seam is made of knows no web framework; only the kinds of store know their drivers."""
    found = [f"{relative(file)} imports {', '.join(sorted(misplaced(file)))}" for file in modules(SERVICE)]
    assert [fault for fault in found if not fault.endswith(" imports ")] == []


def misplaced(file: Path) -> set[str]:
    """Return the frameworks and drivers that a module imports and should not."""
    own = name(file, SERVICE)
    if not own:
        return set()
    within = FRAMEWORKS if layer(own[0]) < layer("wire") else set()
    of_stores = set() if own[0] == "stores" else DRIVERS - ({"redis"} if own in TOLD_BY_REDIS else set())
    return tops(file, SERVICE) & (within | of_stores)


def test_the_check_would_notice(tmp_path: Path) -> None:
    """The reading of imports itself: relative and absolute ones, of modules and of names, inside functions too."""
    package = tmp_path / "tableside"
    (package / "stores").mkdir(parents=True)
    file = package / "stores" / "memory.py"
    file.write_text(
        "from ..table import Table\nfrom . import rocksdb\nfrom .redis import x\nimport tableside.app\n"
        "from tableside import catalog\ndef f():\n    from ... import outside\n    import json, os.path\n"
    )
    assert set(imported(file, package)) == {
        ("tableside", "table", "Table"),
        ("tableside", "stores", "rocksdb"),
        ("tableside", "stores", "redis", "x"),
        ("tableside", "app"),
        ("tableside", "catalog"),
        ("outside",),
        ("json",),
        ("os", "path"),
    }
