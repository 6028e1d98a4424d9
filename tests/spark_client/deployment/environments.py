"""Environments: for executors, one without Tableside, a zip file and a packed one; for clients, one without Java."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark

import pyspark_tableside
import tableside_client
import tableside_spark
from servers.install import ensure_packages
from spark_client.versions.cases import CONNECT_CLIENTS

SITE = Path(sysconfig.get_path("purelib"))
OURS = [
    Path(package.__file__).parent
    for package in (tableside_client, tableside_spark, pyspark_tableside)
    if package.__file__
]
PURE = ("anyio", "certifi", "h11", "httpcore", "httpx", "idna", "typing_extensions.py")
"""The requirements of httpx, as docs/spark-deployment.md lists them."""
NATIVE = ("numpy", "numpy.libs", "pandas", "pyarrow", "dateutil", "pytz", "six.py", "tzdata")
"""The requirements of PySpark's Arrow functions, which only an image or an archive can provide."""
CONNECT = ("google", "grpc", "grpc_status", "yaml", "zstandard")
"""The other requirements of `pyspark-client`."""
TESTING = ("_pytest", "iniconfig", "packaging", "pluggy", "py.py", "pygments", "pytest")


def without_java(folder: Path) -> Path:
    """Create an environment with Tableside and `pyspark-client`, for clients of this PySpark, and return its Python."""
    version = ".".join(pyspark.__version__.split(".")[:2])
    client = ensure_packages(f"pyspark-client-{CONNECT_CLIENTS[version]}")
    python = _venv(folder)
    names = (*NATIVE, *_metadata(), *PURE, *CONNECT, *TESTING)
    for source in (*OURS, *(SITE / name for name in names), *client.iterdir()):
        (_site(folder) / source.name).symlink_to(source)
    return python


def lacking(folder: Path) -> Path:
    """Create an environment with PySpark's requirements and without Tableside, and return its Python."""
    python = _venv(folder)
    for name in (*NATIVE, *_metadata()):
        (_site(folder) / name).symlink_to(SITE / name)
    return python


def packages(folder: Path) -> Path:
    """Create a zip file with the client and everything that it imports, except native packages."""
    return _zip(folder, [*OURS, *(SITE / name for name in PURE)])


def wheel(folder: Path) -> Path:
    """Create a zip file with only the client, like a wheel."""
    return _zip(folder, OURS)


def archive(folder: Path, *, whole: bool) -> Path:
    """Create a packed environment with all packages. Unless `whole`, native packages are links, which is faster."""
    _venv(folder, "--copies")
    for source in [*OURS, *(SITE / name for name in PURE)]:
        _copy(source, _site(folder) / source.name)
    for name in (*NATIVE, *_metadata()):
        if whole:
            _copy(SITE / name, _site(folder) / name)
        else:
            (_site(folder) / name).symlink_to(SITE / name)
    packed = folder.with_suffix(".tar.gz")
    command = f"tar -C {folder} -cf - . | gzip -1 > {packed}"
    subprocess.run(command, shell=True, check=True)
    return packed


def _venv(folder: Path, *options: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *options, str(folder)], check=True)
    return folder / "bin" / "python"


def _site(folder: Path) -> Path:
    [found] = folder.glob("lib/python*/site-packages")
    return found


def _metadata() -> list[str]:
    """Return the names of the native packages' metadata folders, which contain their versions."""
    return [path.name for name in ("numpy", "pandas", "pyarrow") for path in SITE.glob(f"{name}-*.dist-info")]


def _zip(folder: Path, sources: list[Path]) -> Path:
    folder.mkdir()
    for source in sources:
        _copy(source, folder / source.name)
    return Path(shutil.make_archive(str(folder), "zip", folder))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    else:
        shutil.copy(source, target)
