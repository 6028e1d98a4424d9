"""What is in the image, and what is not."""

import hashlib
import importlib.metadata
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from deploy.image.built import ARGUMENTS, NAME, Built
from deploy.image.locked import requirements
from deploy.image.reading import holds
from scripts.bootstrap import ROOT
from servers.container import Run, ran

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("image")]

OURS = "opt/tableside"
DIGESTS_ONLY = """
RUN cd /opt/tableside && find . -type f -exec sha256sum {} + > /digests
FROM scratch
COPY --from=builder /digests /digests
"""
"""What the last stage is in place of the image, so that what was built need not be kept to be compared."""

RUN_MAX_S = 60.0
RAISING = stat.S_ISUID | stat.S_ISGID
LABEL = "org.opencontainers.image"
PLACES_OF_MOUNTS = {"etc/hosts", "etc/resolv.conf"}
"""Empty files that the builder leaves where it had its own."""

INSTALLERS = re.compile(r"(pip|uv|uvx|conda|easy_install|ensurepip|setuptools|wheel|hatchling)\d?([-.]\d.*)?")
COMPILERS = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|cpp|ld|as|make|cargo|rustc|cython3?)(-[\d.]+)?")


def test_it_says_what_it_is(tableside_image: Built) -> None:
    labels = tableside_image.image.config["Labels"]
    said = {name.removeprefix(f"{LABEL}."): text for name, text in labels.items() if name.startswith(LABEL)}
    assert said == {
        "title": "Tableside",
        "description": importlib.metadata.metadata("tableside")["Summary"],
        "licenses": importlib.metadata.metadata("tableside")["License-Expression"],
        "version": ARGUMENTS["VERSION"],
        "revision": ARGUMENTS["REVISION"],
        "source": ARGUMENTS["SOURCE"],
    }


def test_it_runs_the_command_as_a_numbered_user_and_is_ended_by_sigterm(tableside_image: Built) -> None:
    config = tableside_image.image.config
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["tableside"]
    assert config["Cmd"] == ["serve", "--host", "0.0.0.0"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["WorkingDir"] == "/data"
    assert config["ExposedPorts"] == {"8080/tcp": {}}
    assert "Volumes" not in config


def test_it_has_the_locked_packages_and_no_other(tableside_image: Built) -> None:
    installed = dict(distributions(tableside_image.image.root))
    assert installed.pop("tableside") == ARGUMENTS["VERSION"]
    assert installed == locked(tableside_image)
    assert not list(importlib.metadata.distributions(path=debians(tableside_image.image.root)))


def test_nothing_in_it_installs_or_compiles(tableside_image: Built) -> None:
    tools = [
        file
        for file in files(tableside_image.image.root)
        if INSTALLERS.fullmatch(file.name) or ("bin" in file.parts and COMPILERS.fullmatch(file.name))
    ]
    assert tools == []


def test_what_is_looked_for_is_in_the_base(tableside_image: Built) -> None:
    """Otherwise the two tests around this one could not fail."""
    with tarfile.open(tableside_image.base) as base:
        members = base.getmembers()
    assert [member for member in members if Path(member.name).name == "ensurepip"]
    assert [member for member in members if member.isfile() and member.mode & RAISING]


def test_nothing_in_it_raises_rights(tableside_image: Built) -> None:
    assert raising(tableside_image.image.root) == []


def test_beside_the_service_and_its_user_nothing_is_added_to_the_base(tableside_image: Built) -> None:
    with tarfile.open(tableside_image.base) as base:
        added = files(tableside_image.image.root) - {Path(name) for name in base.getnames()}
    elsewhere = {str(file) for file in added if not file.is_relative_to(OURS)}
    assert elsewhere - PLACES_OF_MOUNTS == {"data", "etc/tableside", "etc/tableside/config.yaml"}


def test_of_the_project_only_the_packages_are_in_it_and_no_tests_of_anybody(tableside_image: Built) -> None:
    packages = tableside_image.image.root / site_packages(tableside_image.image.root)
    ours = {
        file.parts[0] for file in importlib.metadata.Distribution.at(next(packages.glob("tableside-*"))).files or ()
    }
    assert {name for name in ours if not name.startswith(("tableside-", ".."))} == {
        "tableside",
        "tableside_client",
        "tableside_spark",
        "pyspark_tableside",
    }
    assert [file for file in files(tableside_image.image.root / OURS) if "tests" in file.parts] == []
    assert (packages / "tableside_spark" / "state" / "tableside-state.jar").is_file()


def test_all_of_it_belongs_to_root_but_the_data(tableside_image: Built) -> None:
    root = tableside_image.image.root
    assert {file for file in files(root) if (root / file).lstat().st_uid == 10001} == {Path("data")}
    assert [file for file in files(root / OURS) if writable_by_others(root / OURS / file)] == []


def test_every_module_is_compiled_and_never_again(tableside_image: Built) -> None:
    packages = tableside_image.image.root / site_packages(tableside_image.image.root)
    modules = sorted((packages / "tableside").rglob("*.py"))
    assert modules
    for module in modules:
        [compiled] = (module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc")
        assert compiled.read_bytes()[4:8] == b"\x01\x00\x00\x00"  # hashed, and not to be checked (PEP 552)


def test_no_secret_of_the_build_is_in_a_layer_or_in_what_is_said_of_it(tableside_image: Built, tmp_path: Path) -> None:
    tableside_image.builder.export(NAME, tmp_path)
    exported = [file for file in tmp_path.iterdir() if file.is_file()]
    assert holds(exported, ARGUMENTS["REVISION"].encode())  # of what is said
    assert holds(exported, (ROOT / "examples" / "container.yaml").read_bytes())  # of a layer
    assert not holds(exported, tableside_image.canary.encode())


@pytest.mark.full
def test_built_again_it_has_the_same_files(tableside_image: Built, tmp_path: Path) -> None:
    again, file = f"{NAME}-again", tmp_path / "Dockerfile"
    stage, last, _ = (tableside_image.context / "Dockerfile").read_text().partition("\nFROM ${BASE}\n")
    assert last
    file.write_text(stage + DIGESTS_ONLY)
    given: dict[str, Any] = {"arguments": ARGUMENTS, "secrets": tableside_image.secrets, "file": file}
    tableside_image.builder.build(again, tableside_image.context, **given)
    with tableside_image.builder.unpacked(again) as root:
        second = dict(line.split("  ./")[::-1] for line in (root / "digests").read_text().splitlines())
    first = dict(digests(tableside_image.image.root / OURS))
    assert first.keys() == second.keys()
    assert {file for file in first if first[file] != second[file]} == set()


def test_the_documentation_says_how_large_it_is(tableside_image: Built) -> None:
    root = tableside_image.image.root
    size_mb = sum((root / OURS / file).lstat().st_size for file in files(root / OURS)) / 1e6
    packages = sorted(distributions(root))
    keep(f"{size_mb:.0f} MB beside the base, {len(packages)} packages", *map("==".join, packages))
    quoted = re.search(r"(\d+) MB beside its base, (\d+) packages", (ROOT / "docs" / "image.md").read_text())
    assert quoted
    assert float(quoted[1]) == pytest.approx(size_mb, rel=0.1)
    assert int(quoted[2]) == pytest.approx(len(packages), abs=2)  # some are for some releases of Python only


def keep(*lines: str) -> None:
    """Print what the image has, and leave it where whoever ran the tests finds it."""
    text = "\n".join(lines)
    print(text)
    folder = ROOT / "artifacts"
    folder.mkdir(exist_ok=True)
    (folder / "image.txt").write_text(f"{text}\n")


def locked(tableside_image: Built) -> dict[str, str]:
    """Return the versions that are locked for the image's Python."""
    ask = "import json; from packaging.markers import default_environment; print(json.dumps(default_environment()))"
    asked = ran(tableside_image.image, Run(["-c", ask], entrypoint=["python3"]), RUN_MAX_S)
    there = json.loads(asked.stdout)
    listed = requirements(ROOT / "requirements" / "image.txt")
    chosen = [one for one in listed if one.marker is None or one.marker.evaluate(there)]
    return {one.name: str(one.specifier).removeprefix("==") for one in chosen}


def distributions(root: Path) -> Iterator[tuple[str, str]]:
    for found in importlib.metadata.distributions(path=[str(root / site_packages(root))]):
        yield canonicalize_name(found.metadata["Name"]), found.version


def site_packages(root: Path) -> Path:
    [folder] = (root / OURS).glob("lib/python3*/site-packages")
    return folder.relative_to(root)


def debians(root: Path) -> list[str]:
    """Return where a base keeps packages of Python's."""
    return [str(folder) for folder in root.glob("usr/**/*-packages")]


def files(root: Path) -> set[Path]:
    """Return all paths below a folder, itself not counted."""
    return {Path(folder, name).relative_to(root) for folder, *both in os.walk(root) for names in both for name in names}


def raising(root: Path) -> list[Path]:
    """Return the files that run with the rights of whom they belong to."""
    return [file for file in files(root) if (mode := (root / file).lstat().st_mode) & RAISING and stat.S_ISREG(mode)]


def writable_by_others(file: Path) -> bool:
    mode = file.lstat().st_mode
    return not stat.S_ISLNK(mode) and bool(mode & 0o022)


def digests(root: Path) -> Iterator[tuple[str, str]]:
    for file in files(root):
        if not (root / file).is_symlink() and (root / file).is_file():
            yield str(file), hashlib.sha256((root / file).read_bytes()).hexdigest()
