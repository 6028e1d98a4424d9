"""`scripts/release` builds the same from the same commit, and builds nothing that could not be built again."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.version import Version

from scripts import bill_of_materials, changelog, distributions
from scripts.bootstrap import ROOT, SetupError
from support.released import VERSION, Released, describe, page_block
from support.trees import NO_CONFIGURATION, commit, git, module

pytestmark = pytest.mark.xdist_group("released")

EXTRAS = ("service", "spark")
RELEASED = {
    f"tableside-{VERSION}-py3-none-any.whl",
    f"tableside-{VERSION}.tar.gz",
    f"tableside-{VERSION}.service.cdx.json",
    f"tableside-{VERSION}.spark.cdx.json",
    "SHA256SUMS",
}


@pytest.fixture
def clone(released: Released, tmp_path: Path) -> Path:
    """A clone of the repository that was released, at its tag."""
    git(tmp_path, "clone", "--quiet", released.repository.as_uri(), "clone")
    return tmp_path / "clone"


def test_it_makes_an_sdist_a_wheel_bills_of_materials_and_their_digests(released: Released) -> None:
    assert {file.name for file in released.dist.iterdir()} == RELEASED
    checked = shell(page_block("sha256sum"), released.dist)
    assert checked.splitlines() == [f"{name}: OK" for name in sorted(RELEASED - {"SHA256SUMS"})]


def test_it_says_what_is_left_to_be_done(released: Released) -> None:
    commit_id = git(released.repository, "rev-parse", "HEAD").strip()
    assert f"tableside {VERSION}, built from {commit_id}" in released.said
    assert (released.dist / "SHA256SUMS").read_text() in released.said
    assert f"git push origin v{VERSION}\n" in released.said
    assert f"uv publish dist/{released.sdist.name} dist/{released.wheel.name}\n" in released.said


def test_who_makes_the_release_again_gets_the_same_bytes(released: Released, tmp_path: Path) -> None:
    shutil.copy(released.dist / "SHA256SUMS", tmp_path)
    commands = page_block("git clone").replace("REPOSITORY", released.repository.as_uri())
    commands = commands.replace("scripts/release", f"{sys.executable} -m scripts.releasing")
    other = {"SETUPTOOLS_SCM_PRETEND_VERSION": "6.6.6", "TZ": "Asia/Tokyo"}
    said = shell(f"umask 077\n{commands}", tmp_path, other)
    assert said.startswith(f"dist/ holds tableside {VERSION}, ")


@pytest.mark.parametrize("file", ["README.md", "service/tableside/new.py"])
def test_changes_that_are_in_no_commit_are_refused(clone: Path, file: str) -> None:
    (clone / file).write_text("changed")
    said = module(clone, "scripts.releasing", code=1)
    assert said.startswith("release: the tree has changes that are in no commit:\n")
    assert file in said
    assert not (clone / "dist").exists()


def test_a_release_that_the_changelog_does_not_describe_is_refused(clone: Path) -> None:
    commit(clone)
    git(clone, "tag", "v1.2.4")
    said = module(clone, "scripts.releasing", code=1)
    assert said == "release: CHANGELOG.md has no entry '## [1.2.4] - YYYY-MM-DD' that says what is new\n"
    assert not (clone / "dist").exists()


def test_a_release_whose_chart_asks_for_another_image_is_refused(clone: Path) -> None:
    describe(clone, "1.2.4")
    git(clone, "checkout", "--quiet", "HEAD~", "--", "helm/Chart.yaml")
    commit(clone)
    git(clone, "tag", "v1.2.4")
    said = module(clone, "scripts.releasing", code=1)
    assert said == "release: helm/Chart.yaml asks for the image of 1.2.3: its appVersion has to be 1.2.4\n"
    assert not (clone / "dist").exists()


def test_a_tree_that_is_no_repository_is_refused(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    assert "not a git repository" in module(clone, "scripts.releasing", code=1)


def test_a_development_version_is_built_but_not_published(clone: Path) -> None:
    commit(clone)
    said = module(clone, "scripts.releasing")
    [wheel] = (clone / "dist").glob("*.whl")
    assert re.fullmatch(r"tableside-1\.2\.4\.dev1\+g[0-9a-f]+-py3-none-any\.whl", wheel.name)
    assert "A development version is not published." in said
    assert "uv publish" not in said


@pytest.mark.parametrize(
    ("entry", "described"),
    [
        ("## [1.2.3] - 2026-01-02\n\n* New.\n", True),
        ("## [Unreleased]\n\n* Not yet.\n\n## [1.2.3] - 2026-01-02 [YANKED]\n\n### Added\n\n* New.\n", True),
        ("## [1.2.3] - 2026-01-02\n\n## [1.2.2] - 2026-01-01\n\n* New.\n", False),
        ("## [1.2.3]\n\n* New.\n", False),
        ("## [1.2.30] - 2026-01-02\n\n* New.\n", False),
        ("", False),
    ],
)
def test_a_version_is_described_by_an_entry_with_a_date_and_words(entry: str, described: bool) -> None:
    assert changelog.describes(f"# Changelog\n\nWhat changed.\n\n{entry}", Version("1.2.3")) is described


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_bill_of_materials_is_valid_and_names_no_place_to_install_from(released: Released, extra: str) -> None:
    text = released.bill(extra).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert '"externalReferences"' not in text


@pytest.mark.parametrize(
    ("extra", "present", "absent"),
    [
        ("service", {"fastapi", "redis", "asyncpg", "aioboto3", "rocksdict"}, {"pyspark", "pandas", "pytest"}),
        ("spark", {"pyspark", "pandas", "httpx", "pyarrow"}, {"fastapi", "redis", "pytest"}),
    ],
)
def test_a_bill_of_materials_says_what_the_extra_is_made_of(
    released: Released, extra: str, present: set[str], absent: set[str]
) -> None:
    bill = json.loads(released.bill(extra).read_text())
    named = {part["name"] for part in bill["components"]}
    assert named >= present
    assert not named & absent
    assert [part["name"] for part in bill["components"] if not part.get("licenses")] == []
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("tableside", VERSION)
    [needs] = [each["dependsOn"] for each in bill["dependencies"] if each["ref"] == root["bom-ref"]]
    assert {ref.split("==")[0] for ref in needs} >= present
    assert {"name": "tableside:extra", "value": extra} in bill["metadata"]["properties"]


def test_packages_that_are_not_as_locked_are_not_described(released: Released) -> None:
    locked = (ROOT / "requirements" / "constraints.txt").read_text()
    other = re.sub(r"(?m)^httpx==\S+", "httpx==0.0.1", locked)
    with pytest.raises(SetupError, match=r"not installed as locked: httpx==\d"):
        bill_of_materials.bill(released.wheel, "", other, {})


def test_what_would_be_wrong_about_publishing_is_found(released: Released, tmp_path: Path) -> None:
    assert distributions.faults(released.wheel, released.sdist, Version(VERSION)) == []
    [fault] = distributions.faults(released.wheel, released.sdist, Version("6.6.6"))
    assert fault == f"{released.wheel.name}: is tableside {VERSION}, not tableside 6.6.6"
    wheel = tmp_path / released.wheel.name
    shutil.copy(released.wheel, wheel)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tests/__init__.py", "")
    [fault] = distributions.faults(wheel, released.sdist, Version(VERSION))
    assert fault == f"{wheel.name}: would install tests, which is not ours"
    for file in (wheel, sdist := tmp_path / released.sdist.name):
        take_jar_out(released.dist / file.name, file)
    assert distributions.faults(wheel, sdist, Version(VERSION)) == [
        f"{file.name}: has no jar of the state store" for file in (wheel, sdist)
    ]


def take_jar_out(archive: Path, copy: Path) -> None:
    """Copy a wheel or an sdist, but for the jar in it."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel, zipfile.ZipFile(copy, "w") as less:
            for name in wheel.namelist():
                if not name.endswith(".jar"):
                    less.writestr(name, wheel.read(name))
        return
    with tarfile.open(archive) as sdist, tarfile.open(copy, "w:gz") as less_of_it:
        for member in sdist.getmembers():
            if not member.name.endswith(".jar"):
                less_of_it.addfile(member, sdist.extractfile(member))


def shell(commands: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run commands of a page in a folder, and return what they print."""
    full = {**os.environ, **NO_CONFIGURATION, **(environment or {})}
    done = subprocess.run(["sh", "-euc", commands], cwd=folder, env=full, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
