"""The contents of the image."""

import importlib.metadata
import json
import mmap
import os
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from deploy.image.built import ARGUMENTS, NAME, Built
from deploy.image.test_locked import requirements
from scripts.bootstrap import ROOT
from servers.container import Run, ran

pytestmark = [pytest.mark.daily, pytest.mark.server, pytest.mark.xdist_group("image")]

OURS = "opt/tableside"
RUN_MAX_S = 60.0
SETUID_SETGID = stat.S_ISUID | stat.S_ISGID
LABEL = "org.opencontainers.image"
MOUNT_POINTS = {"etc/hosts", "etc/resolv.conf"}
"""Empty files that the builder leaves behind at its mount points."""

INSTALLERS = re.compile(r"(pip|uv|uvx|conda|easy_install|ensurepip|setuptools|wheel|hatchling)\d?([-.]\d.*)?")
COMPILERS = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|cpp|ld|as|make|cargo|rustc|cython3?)(-[\d.]+)?")


def test_the_labels_describe_the_image(tableside_image: Built) -> None:
    labels = tableside_image.image.config["Labels"]
    described = {name.removeprefix(f"{LABEL}."): text for name, text in labels.items() if name.startswith(LABEL)}
    assert described == {
        "title": "Tableside",
        "description": importlib.metadata.metadata("tableside")["Summary"],
        "licenses": importlib.metadata.metadata("tableside")["License-Expression"],
        "version": ARGUMENTS["VERSION"],
        "revision": ARGUMENTS["REVISION"],
        "source": ARGUMENTS["SOURCE"],
    }


def test_it_runs_the_command_as_a_numeric_user_and_stops_on_sigterm(tableside_image: Built) -> None:
    config = tableside_image.image.config
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["tableside"]
    assert config["Cmd"] == ["serve", "--host", "0.0.0.0"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["WorkingDir"] == "/data"
    assert config["ExposedPorts"] == {"8080/tcp": {}}
    assert "Volumes" not in config


def test_it_contains_only_the_locked_packages(tableside_image: Built) -> None:
    installed = dict(distributions(tableside_image.image.root))
    assert installed.pop("tableside") == importlib.metadata.version("tableside")
    assert installed == locked(tableside_image)
    assert not list(importlib.metadata.distributions(path=debian_packages(tableside_image.image.root)))


def test_it_contains_no_installer_or_compiler(tableside_image: Built) -> None:
    tools = [
        file
        for file in files(tableside_image.image.root)
        if INSTALLERS.fullmatch(file.name) or ("bin" in file.parts and COMPILERS.fullmatch(file.name))
    ]
    assert tools == []


def test_only_the_service_and_its_user_are_added_to_the_base(tableside_image: Built) -> None:
    with tarfile.open(tableside_image.base) as base:
        added = files(tableside_image.image.root) - {Path(name) for name in base.getnames()}
    elsewhere = {str(file) for file in added if not file.is_relative_to(OURS)}
    assert elsewhere - MOUNT_POINTS == {"data", "etc/tableside", "etc/tableside/config.yaml"}


def test_it_contains_our_packages_and_no_tests(tableside_image: Built) -> None:
    packages = tableside_image.image.root / site_packages(tableside_image.image.root)
    ours = {
        file.parts[0] for file in importlib.metadata.Distribution.at(next(packages.glob("tableside-*"))).files or ()
    }
    assert {name for name in ours if not name.startswith(("tableside-", ".."))} == {
        "tableside",
        "tableside_cli",
        "tableside_client",
        "tableside_spark",
        "pyspark_tableside",
    }
    assert [file for file in files(tableside_image.image.root / OURS) if "tests" in file.parts] == []
    assert (packages / "tableside_spark" / "state" / "tableside-state.jar").is_file()


def test_root_owns_all_files_except_the_data_and_none_is_setuid(tableside_image: Built) -> None:
    root = tableside_image.image.root
    found = {file: (root / file).lstat() for file in files(root)}
    assert {file for file, status in found.items() if status.st_uid == 10001} == {Path("data")}
    assert not any(stat.S_ISREG(status.st_mode) and status.st_mode & SETUID_SETGID for status in found.values())
    assert [file for file in files(root / OURS) if writable_by_others(root / OURS / file)] == []


def test_no_build_secret_is_in_a_layer_or_in_the_description(tableside_image: Built, tmp_path: Path) -> None:
    tableside_image.builder.export(NAME, tmp_path)
    exported = [file for file in tmp_path.iterdir() if file.is_file()]
    assert contains(exported, ARGUMENTS["REVISION"].encode())  # in the description
    assert contains(exported, (ROOT / "examples" / "container.yaml").read_bytes())  # in a layer
    assert not contains(exported, tableside_image.canary.encode())


def test_the_documentation_states_its_size(tableside_image: Built) -> None:
    root = tableside_image.image.root
    size_mb = sum((root / OURS / file).lstat().st_size for file in files(root / OURS)) / 1e6
    quoted = re.search(r"It adds (\d+) MB to the base image", (ROOT / "docs" / "kubernetes.md").read_text())
    assert quoted
    assert float(quoted[1]) == pytest.approx(size_mb, rel=0.1)


def contains(files: Iterable[Path], wanted: bytes) -> bool:
    """Return whether any of the files, which are too large to read into memory, contains these bytes."""
    for file in files:
        if file.stat().st_size:
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                if whole.find(wanted) != -1:
                    return True
    return False


def locked(tableside_image: Built) -> dict[str, str]:
    """Return the locked versions for the Python of the image."""
    program = "import json; from packaging.markers import default_environment; print(json.dumps(default_environment()))"
    done = ran(tableside_image.image, Run(["-c", program], entrypoint=["python3"]), RUN_MAX_S)
    environment = json.loads(done.stdout)
    listed = requirements(ROOT / "requirements" / "image.txt")
    chosen = [one for one in listed if one.marker is None or one.marker.evaluate(environment)]
    return {one.name: str(one.specifier).removeprefix("==") for one in chosen}


def distributions(root: Path) -> Iterator[tuple[str, str]]:
    for found in importlib.metadata.distributions(path=[str(root / site_packages(root))]):
        yield canonicalize_name(found.metadata["Name"]), found.version


def site_packages(root: Path) -> Path:
    [folder] = (root / OURS).glob("lib/python3*/site-packages")
    return folder.relative_to(root)


def debian_packages(root: Path) -> list[str]:
    """Return the folders for Python packages of Debian."""
    return [str(folder) for folder in root.glob("usr/**/*-packages")]


def files(root: Path) -> set[Path]:
    """Return all paths below a folder."""
    return {Path(folder, name).relative_to(root) for folder, *both in os.walk(root) for names in both for name in names}


def writable_by_others(file: Path) -> bool:
    mode = file.lstat().st_mode
    return not stat.S_ISLNK(mode) and bool(mode & 0o022)
