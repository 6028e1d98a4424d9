"""`scripts/release` builds the same bytes from the same commit, and refuses trees that it cannot reproduce."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.version import Version

from scripts import releasing
from support.released import VERSION, Released, describe, page_block, set_version
from support.trees import NO_CONFIGURATION, commit, git, module

pytestmark = [pytest.mark.daily, pytest.mark.xdist_group("released")]

RELEASED = {
    f"tableside-{VERSION}-py3-none-any.whl",
    f"tableside-{VERSION}.tar.gz",
    f"tableside-{VERSION}.service.cdx.json",
    f"tableside-{VERSION}.spark.cdx.json",
    "SHA256SUMS",
}


@pytest.fixture
def clone(released: Released, tmp_path: Path) -> Path:
    """A clone of the released repository."""
    git(tmp_path, "clone", "--quiet", released.repository.as_uri(), "clone")
    return tmp_path / "clone"


def test_it_builds_an_sdist_a_wheel_bills_of_materials_and_digests(released: Released) -> None:
    assert {file.name for file in released.dist.iterdir()} == RELEASED
    checked = shell(page_block("sha256sum"), released.dist)
    assert checked.splitlines() == [f"{name}: OK" for name in sorted(RELEASED - {"SHA256SUMS"})]


def test_a_second_release_of_the_commit_has_the_same_bytes(released: Released, tmp_path: Path) -> None:
    shutil.copy(released.dist / "SHA256SUMS", tmp_path)
    commands = page_block("git clone").replace("REPOSITORY", released.repository.as_uri())
    commands = commands.replace("scripts/release", f"{sys.executable} -m scripts.releasing")
    other = {"TZ": "Asia/Tokyo"}
    said = shell(f"umask 077\n{commands}", tmp_path, other)
    assert said.startswith(f"dist/ contains tableside {VERSION}, ")


def test_uncommitted_changes_are_refused(clone: Path) -> None:
    for file in ("README.md", "service/tableside/new.py"):
        (clone / file).write_text("changed")
    said = module(clone, "scripts.releasing", code=1)
    assert said.startswith("release: the tree has uncommitted changes:\n")
    assert "README.md" in said
    assert "service/tableside/new.py" in said
    assert not (clone / "dist").exists()


def test_a_release_that_the_changelog_does_not_describe_is_refused(clone: Path) -> None:
    set_version(clone, "1.2.4")
    commit(clone)
    said = module(clone, "scripts.releasing", code=1)
    assert said == "release: CHANGELOG.md has no entry '## [1.2.4] - YYYY-MM-DD' that describes the changes\n"
    describe(clone, "1.2.4")
    git(clone, "checkout", "--quiet", "HEAD~", "--", "helm/Chart.yaml")
    commit(clone)
    said = module(clone, "scripts.releasing", code=1)
    assert said == "release: the appVersion in helm/Chart.yaml is 1.2.3: it must be 1.2.4\n"
    assert not (clone / "dist").exists()


def test_a_development_version_is_built_but_not_published(clone: Path) -> None:
    set_version(clone, "1.2.4.dev0")
    commit(clone)
    said = module(clone, "scripts.releasing")
    [wheel] = (clone / "dist").glob("*.whl")
    assert wheel.name == "tableside-1.2.4.dev0-py3-none-any.whl"
    assert "This is a development version: do not publish it." in said
    assert "uv publish" not in said


@pytest.mark.parametrize(
    ("entry", "described"),
    [
        ("## [1.2.3] - 2026-01-02\n\n* New.\n", True),
        ("## [Unreleased]\n\n* Not yet.\n\n## [1.2.3] - 2026-01-02 [YANKED]\n\n### Added\n\n* New.\n", True),
        ("## [1.2.3] - 2026-01-02\n\n## [1.2.2] - 2026-01-01\n\n* New.\n", False),
        ("## [1.2.30] - 2026-01-02\n\n* New.\n", False),
        ("", False),
    ],
)
def test_an_entry_describes_a_version_if_it_has_a_date_and_text(entry: str, described: bool) -> None:
    assert releasing.describes(f"# Changelog\n\nWhat changed.\n\n{entry}", Version("1.2.3")) is described


@pytest.mark.parametrize(("extra", "present"), [("service", {"fastapi", "redis", "rocksdict"}), ("spark", {"pyspark"})])
def test_a_bill_of_materials_is_valid_and_has_licenses_and_dependencies(
    released: Released, extra: str, present: set[str]
) -> None:
    # Validating the URLs of the packages would take most of a minute.
    bill = json.loads(released.bill(extra).read_text(), object_hook=without_external_references)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    assert [part["name"] for part in bill["components"] if not (part.get("licenses") and part.get("purl"))] == []
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("tableside", VERSION)
    [needs] = [each["dependsOn"] for each in bill["dependencies"] if each["ref"] == root["bom-ref"]]
    assert {ref.split("==")[0] for ref in needs} >= present


def without_external_references(part: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a bill of materials without its URLs."""
    return {name: value for name, value in part.items() if name != "externalReferences"}


def shell(commands: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run commands of a page in a folder, and return their output."""
    full = {**os.environ, **NO_CONFIGURATION, **(environment or {})}
    done = subprocess.run(["sh", "-euc", commands], cwd=folder, env=full, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
