"""The wheel and the sdist contain exactly our packages. Each extra installs its locked dependencies."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from packaging.utils import canonicalize_name

from scripts import bootstrap, state_jar
from scripts.bootstrap import ROOT
from support.released import VERSION, Released, page_block
from support.running import Service, running
from support.trees import git, module

pytestmark = [pytest.mark.daily, pytest.mark.xdist_group("released")]

LOCKED = ROOT / "requirements" / "constraints.txt"
PACKAGES = (
    "service/tableside",
    "spark_client/tableside_cli",
    "spark_client/tableside_client",
    "spark_client/tableside_spark",
    "spark_client/pyspark_tableside",
)
ABOUT = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
JAR = "tableside_spark/state/tableside-state.jar"
NOWHERE = "127.0.0.1:1"
STORES = {
    "dynamodb": {"region": "eu-west-1", "endpoint_url": f"http://{NOWHERE}"},
    "postgres": {"dsn": f"postgresql://{NOWHERE}/nothing"},
    "redis": {"url": f"redis://{NOWHERE}/0"},
    "rocksdb": {"path": "data"},
}
WITHOUT_JAVA = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
DRIVERS = {"dynamodb": "aioboto3", "postgres": "asyncpg", "redis": "hiredis", "rocksdb": "rocksdict"}

IMPORT_CLIENT = """
import importlib.util
import sys
import tableside_spark
unwanted = ["fastapi", "uvicorn", "starlette", "msgspec", "orjson", "rocksdict", "redis", "pyspark", "pandas", "pip"]
commands_only = ["typer", "rich", "pydantic"]
print([name for name in unwanted if importlib.util.find_spec(name)], [*sys.modules.keys() & commands_only])
"""

Installed = Callable[[str], Path]


@pytest.fixture(scope="module")
def installed(released: Released, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return a function that installs the wheel with an extra into a new environment, and returns its Python."""
    pythons: dict[str, Path] = {}

    def python(extra: str) -> Path:
        if extra not in pythons:
            folder = tmp_path_factory.mktemp("installed") / "environment"
            venv.create(folder, symlinks=True, with_pip=False)
            pythons[extra] = folder / "bin" / "python"
            install(released.wheel, extra, pythons[extra])
        return pythons[extra]

    return python


def test_the_wheel_contains_only_our_packages(released: Released) -> None:
    with zipfile.ZipFile(released.wheel) as archive:
        found = set(archive.namelist())
    ours = {f"{Path(package).name}/{file}" for package in PACKAGES for file in files(released.repository / package)}
    assert found == ours | {JAR} | {f"tableside-{VERSION}.dist-info/{name}" for name in ABOUT}
    assert {"tableside/py.typed", "tableside_spark/py.typed"} <= found


def test_the_sdist_contains_all_files_of_the_repository(released: Released) -> None:
    with tarfile.open(released.sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert found == files(released.repository) | {f"spark_client/{JAR}", "PKG-INFO"}
    assert {"requirements/constraints.txt", "scripts/run", ".ci/run"} <= found


def test_without_git_the_sdist_gives_the_same_wheel(released: Released, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", released.sdist, "-C", tmp_path], check=True)
    with tarfile.open(released.sdist) as archive:
        time = int(archive.getmembers()[0].mtime)
    unpacked, clone = tmp_path / f"tableside-{VERSION}", tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", released.repository.as_uri(), str(clone))
    shutil.copy(unpacked / "spark_client" / JAR, clone / "spark_client" / JAR)  # avoids a second compilation
    for tree, folder in ((unpacked, "of-sdist"), (clone, "of-repository")):
        arguments = ["--wheel", "--no-isolation", "--outdir", str(tmp_path / folder), str(tree)]
        module(tmp_path, "build", *arguments, environment={"SOURCE_DATE_EPOCH": str(time)})
        [wheel] = (tmp_path / folder).iterdir()
        assert (wheel.name, digest(wheel)) == (released.wheel.name, digest(released.wheel))


def test_the_jar_contains_the_state_store_compiled_from_the_sources(released: Released, tmp_path: Path) -> None:
    with zipfile.ZipFile(released.wheel) as wheel, zipfile.ZipFile(wheel.extract(JAR, tmp_path)) as jar:
        names = jar.namelist()
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    assert names == ["META-INF/MANIFEST.MF", *sorted(names[1:])]
    assert "tableside/state/TablesideStateStoreProvider.class" in names
    assert f"Sources-Digest: {state_jar.digest()}\r\n" in manifest


@pytest.mark.parametrize("way", ["of the sdist, whose jar is taken", "of the repository, without it"])
def test_without_a_compiler_a_wheel_is_built(released: Released, tmp_path: Path, way: str) -> None:
    tree = tmp_path / f"tableside-{VERSION}"
    if way.startswith("of the sdist"):
        subprocess.run(["tar", "-xf", released.sdist, "-C", tmp_path], check=True)
    else:
        git(tmp_path, "clone", "--quiet", released.repository.as_uri(), str(tree))
    arguments = ["--wheel", "--no-isolation", "--outdir", str(tmp_path), str(tree)]
    said = module(tmp_path, "build", *arguments, environment=WITHOUT_JAVA)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        has_jar = JAR in archive.namelist()
    assert has_jar is way.startswith("of the sdist")
    assert ("built without the jar of the state store: no javac" in said) is not has_jar


def test_without_extras_it_installs_only_the_client(installed: Installed) -> None:
    assert run(installed(""), "-Ic", IMPORT_CLIENT) == "[] []\n"


@pytest.mark.parametrize("command", [["tableside"], ["python", "-Im", "tableside"]])
def test_without_extras_it_has_the_commands_for_records(
    installed: Installed, service: Service, tmp_path: Path, command: list[str]
) -> None:
    def tableside(*arguments: str) -> str:
        options = ["--url", service.url]
        return run(installed("").with_name(command[0]), *command[1:], *arguments, *options, folder=tmp_path)

    (tmp_path / "rows.csv").write_text("id,n\na,1\n")
    assert tableside("load", "bare", "rows.csv", "--key", "id") == "1 records stored in bare, 0 failed\n"
    assert tableside("update", "bare", "a", '{"$inc": {"n": 1}}') == '{"n": 2}\n'
    assert tableside("get", "bare", "a") == '{"n": 2}\n'
    assert "\nbare\t" in "\n" + tableside("tables")
    tableside("put", "bare", "b", "{}")
    tableside("delete", "bare", "b")
    assert tableside("scan", "bare", "--format", "csv") == "key,n,_ts_record\na,2,{}\n"
    tableside("scan", "bare", "--format", "parquet", "--output", "rows.parquet")
    assert tableside("load", "bare", "rows.parquet") == "1 records stored in bare, 0 failed\n"


@pytest.mark.parametrize("command", ["serve", "check pyvenv.cfg", "token new etl", "token explain --config pyvenv.cfg"])
def test_without_extras_a_command_of_the_service_names_the_missing_extra(installed: Installed, command: str) -> None:
    python = installed("")
    said = run(python.with_name("tableside"), *command.split(), folder=python.parents[1], code=1)
    assert re.fullmatch(r"tableside: the command needs pip install 'tableside\[service\]' \(\w+ is missing\)\n", said)
    assert "Usage: tableside serve" in run(python.with_name("tableside"), "serve", "--help")


@pytest.mark.parametrize("kind", STORES)
def test_an_extra_installs_the_dependencies_of_its_store(installed: Installed, tmp_path: Path, kind: str) -> None:
    config = configuration(tmp_path, kind)
    assert run(installed(kind), "-Im", "tableside", "check", config) == f"{config}: no errors\n"


@pytest.mark.parametrize("kind", STORES)
def test_a_store_without_its_extra_is_refused_in_one_line(installed: Installed, tmp_path: Path, kind: str) -> None:
    config, other = configuration(tmp_path, kind), "redis" if kind == "rocksdb" else "rocksdb"
    said = run(installed(other), "-Im", "tableside", "check", config, code=1)
    needs = f"stores of kind {kind} need: pip install 'tableside[{kind}]' ({DRIVERS[kind]})"
    assert said == f"{config}: stores.{kind}.kind: {needs}\n"


def test_traces_are_sent_by_an_extra_and_refused_without(installed: Installed, tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("{stores: {store: {kind: memory}}, tables: {t: {store: store}}}")
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{NOWHERE}"}
    with running(tmp_path, config, python=installed("traces"), environment=endpoint) as service:
        assert httpx.get(f"{service.url}/v1/tables/t").status_code == 200
    with (
        pytest.raises(RuntimeError, match=r"not installed: pip install 'tableside\[traces\]'"),
        running(tmp_path, config, python=installed("redis"), environment=endpoint),
    ):
        pass


def test_the_service_extra_installs_every_store_and_the_packages_of_its_bill(
    released: Released, installed: Installed, tmp_path: Path
) -> None:
    config = configuration(tmp_path, *STORES)
    assert run(installed("service"), "-Im", "tableside", "check", config) == f"{config}: no errors\n"
    listed = "from importlib.metadata import distributions as all; print(*{f'{d.name}=={d.version}' for d in all()})"
    assert named(run(installed("service"), "-Ic", listed).split()) == named_in_bill(released.bill("service"))


@pytest.mark.skipif(not bootstrap.UV.exists(), reason="without uv PySpark would be downloaded for this")
def test_the_spark_extra_installs_the_packages_of_its_bill(released: Released, installed: Installed) -> None:
    # An installation would take half a gigabyte.
    said = install(released.wheel, "spark", installed(""), "--dry-run", "--reinstall")
    others = named(re.findall(r"(?m)^ \+ (\S+==\S+)", said))
    assert others | {("tableside", VERSION)} == named_in_bill(released.bill("spark"))


def files(folder: Path) -> set[str]:
    """Return the files of a folder that are in its repository."""
    return set(git(folder, "ls-files", "-z").rstrip("\0").split("\0"))


def install(wheel: Path, extra: str, python: Path, *options: str) -> str:
    """Install a wheel with an extra into the environment of a Python, with the commands of docs/releasing.md."""
    for file in (wheel, LOCKED):
        shutil.copy(file, python.parent)
    pip = [str(bootstrap.UV), "pip", "install", "--python", str(python)]
    if not bootstrap.UV.exists():
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    commands = page_block("requirements.txt").replace("DIGEST", digest(wheel)).replace("[service]", f"[{extra}]")
    commands = commands.replace("pip install", shlex.join([*pip, *options]))
    return run("sh", "-euc", commands, folder=python.parent)


def configuration(folder: Path, *kinds: str) -> Path:
    """Write a configuration with a store of each kind, and a table in the first store."""
    file = folder / "tableside.yaml"
    stores = {kind: {"kind": kind, **STORES[kind]} for kind in kinds}
    file.write_text(json.dumps({"stores": stores, "tables": {"table": {"store": kinds[0]}}}))
    return file


def named(requirements: list[str]) -> set[tuple[str, str]]:
    """Split requirements of the form `name==version` into names and versions."""
    pairs = (requirement.split("==") for requirement in requirements)
    return {(canonicalize_name(name), version) for name, version in pairs}


def named_in_bill(bill: Path) -> set[tuple[str, str]]:
    """Return the packages and versions of a bill of materials."""
    described = json.loads(bill.read_text())
    parts = [described["metadata"]["component"], *described["components"]]
    return {(canonicalize_name(part["name"]), part["version"]) for part in parts}


def digest(file: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def run(*command: object, folder: Path | None = None, code: int = 0) -> str:
    """Run a command and return its standard output and error output."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=bootstrap.tool_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout
