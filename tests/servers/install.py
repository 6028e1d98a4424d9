"""Find what a server needs on this machine, and install what is missing. Knows nothing of the servers.

Debian packages go where Debian puts them; everything else goes below `.venv`, and with it away.
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

from scripts.bootstrap import ROOT, VENV, SetupError, step

CACHE = VENV / "servers"
POLICY = Path("/usr/sbin/policy-rc.d")
PACKAGE_LIST_AGE_MAX_S = 3600.0
APT_LOCK_WAIT_MAX_S = 300

# Debian's answer to "may I start this service now?": no, what is started here is started by us.
FORBID = "#!/bin/sh\nexit 101\n"


def ensure_command(name: str, package: str, *, places: str = "") -> Path:
    """Return where a program is: on PATH or in a folder that matches `places`. If nowhere, install its package."""
    if (found := find_command(name, places)) is None:
        with _locked("apt"):
            if find_command(name, places) is None:  # nobody else has installed it meanwhile
                install_package(package, name)
        found = find_command(name, places)
    if found is None:
        raise SetupError(f"the package {package} is installed, but has no {name}")
    return found


def ensure_library(name: str, package: str) -> None:
    """Have a shared library at hand, by its file's name. If it is nowhere, install its package."""
    if not _loads(name):
        with _locked("apt"):
            if not _loads(name):  # nobody else has installed it meanwhile
                install_package(package, name)


def find_command(name: str, places: str = "") -> Path | None:
    """Return where a program is, if anywhere; of several versions in `places` the newest."""
    newest_first = sorted(glob(places), key=_version, reverse=True) if places else []
    found = shutil.which(name, path=os.pathsep.join([*newest_first, os.environ.get("PATH", os.defpath)]))
    return Path(found) if found else None


def ensure_folder(name: str, sources: tuple[Path, ...], fill: Callable[[Path], None]) -> Path:
    """Return the folder `name` below `.venv`, which `fill` has filled according to `sources`; again if these change."""
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


def install_package(package: str, name: str) -> None:
    """Install a Debian package, where we may; say what is missing where we may not. No service of it is started."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupError(f"{name} is missing: install the package {package}")
    patient = ["-o", f"DPkg::Lock::Timeout={APT_LOCK_WAIT_MAX_S}"]
    updated = CACHE / "apt.stamp"
    if not (updated.exists() and time.time() - updated.stat().st_mtime < PACKAGE_LIST_AGE_MAX_S):
        step("updating the list of Debian packages", [apt, *patient, "update"])
        updated.touch()
    with _no_service_starts():
        step(f"installing {package}", [apt, *patient, "install", "--yes", "--no-install-recommends", package])


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _locked(what: str) -> Iterator[None]:
    """Keep other processes from installing the same at the same time; not to be entered twice."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Forbid packages to start the services they bring; a rule that is there already stays."""
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
    """Return a digest of what the sources say and of where the project lies."""
    digest = hashlib.sha256(str(ROOT).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _version(path: str) -> list[int]:
    """Return the numbers in a path, for comparison: 9 is before 15."""
    return [int(part) for part in Path(path).parts if part.isdecimal()]
