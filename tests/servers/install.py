"""Find the programs and libraries that a server needs, and install missing ones.

Debian packages are installed system-wide. Everything else is below `.venv` and is removed with it.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path

from scripts.bootstrap import LOCKED, ROOT, UV, VENV, SetupError, pip, step, update_package_list

CACHE = VENV / "servers"
POLICY = Path("/usr/sbin/policy-rc.d")
PACKAGE_LIST_AGE_MAX_S = 3600.0
APT_LOCK_WAIT_MAX_S = 300

# Debian asks this script whether a package may start its service: never, because this package starts the servers.
FORBID = "#!/bin/sh\nexit 101\n"


def ensure_command(name: str, package: str, *, places: str = "") -> Path:
    """Return the path of a program from PATH or a folder that matches `places`. Install its package if necessary."""
    if (found := find_command(name, places)) is None:
        with _locked("apt"):
            if find_command(name, places) is None:  # another process may have installed it before the lock was free
                install_package(package, name)
        found = find_command(name, places)
    if found is None:
        raise SetupError(f"the package {package} is installed, but has no {name}")
    return found


def ensure_library(name: str, package: str) -> None:
    """Install the package of a shared library, named by its file, if the library cannot be loaded."""
    if not _loads(name):
        with _locked("apt"):
            if not _loads(name):  # another process may have installed it before the lock was free
                install_package(package, name)


def find_command(name: str, places: str = "") -> Path | None:
    """Return the path of a program, or None. If `places` has several versions, return the newest."""
    newest_first = sorted(glob(places), key=_version, reverse=True) if places else []
    found = shutil.which(name, path=os.pathsep.join([*newest_first, os.environ.get("PATH", os.defpath)]))
    return Path(found) if found else None


def ensure_folder(name: str, sources: tuple[Path, ...], fill: Callable[[Path], None]) -> Path:
    """Return the folder `name` below `.venv`. `fill` fills it the first time and whenever `sources` change."""
    folder, digest = CACHE / name, _digest(sources)
    stamp = folder / "stamp"
    with _locked(name):
        if not (stamp.exists() and stamp.read_text() == digest):
            with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
                made = Path(temporary) / name
                made.mkdir()
                fill(made)
                (made / "stamp").write_text(digest)
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    return folder


def ensure_packages(name: str) -> Path:
    """Return a folder with the packages of `requirements/NAME.txt` only. Install them the first time."""
    locked = ROOT / "requirements" / f"{name}.txt"
    return ensure_folder(name, (locked,), lambda folder: _install_packages(name, locked, folder))


def _install_packages(name: str, locked: Path, folder: Path) -> None:
    arguments = ["--no-deps", "--require-hashes", "--requirement", str(locked), "--target", str(folder)]
    build = ["--build-constraints", str(LOCKED)] if UV.exists() else []  # for packages that are released as source
    step(f"installing {name}", [*pip(UV.exists()), *arguments, *build])


def install_package(package: str, name: str) -> None:
    """Install a Debian package without starting its services. Raise `SetupError` without apt or root privileges."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupError(f"{name} is missing: install the package {package}")
    lock_timeout = ["-o", f"DPkg::Lock::Timeout={APT_LOCK_WAIT_MAX_S}"]
    updated = CACHE / "apt.stamp"
    if not (updated.exists() and time.time() - updated.stat().st_mtime < PACKAGE_LIST_AGE_MAX_S):
        update_package_list(apt)
        updated.touch()
    with _no_service_starts():
        step(f"installing {package}", [apt, *lock_timeout, "install", "--yes", "--no-install-recommends", package])


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _locked(what: str) -> Iterator[None]:
    """Keep other processes from installing the same thing at the same time. The lock is not reentrant."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Forbid packages to start their services. Keep an existing rule."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(FORBID)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _digest(sources: tuple[Path, ...]) -> str:
    """Return a digest of the sources' contents and of the project's location."""
    digest = hashlib.sha256(str(ROOT).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _version(path: str) -> list[int]:
    """Return the numbers in a path as a sort key, so that 9 sorts before 15."""
    return [int(part) for part in Path(path).parts if part.isdecimal()]
