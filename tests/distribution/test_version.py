"""The version of a tree comes from git's tags. Without tags it is still a valid version."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

import tableside
from scripts.bootstrap import ROOT
from support.trees import commit, committed, git, module

pytestmark = pytest.mark.server

NODE = r"\+g[0-9a-f]{7,}"
WHAT_DECIDES = ("pyproject.toml", ".gitattributes", ".git_archival.txt")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit of the files that determine the version."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in WHAT_DECIDES:
        shutil.copy(ROOT / name, folder)
    return committed(folder)


@pytest.mark.parametrize("released", ["1.2.3", "1.3.0rc1"])
def test_a_tagged_commit_is_the_version_of_its_tag(repository: Path, released: str) -> None:
    git(repository, "tag", f"v{released}")
    assert version_of(repository) == released


def test_after_a_release_it_is_a_development_version_of_the_next(repository: Path) -> None:
    git(repository, "tag", "v1.2.3")
    commit(repository)
    commit(repository)
    assert re.fullmatch(rf"1\.2\.4\.dev2{NODE}", version_of(repository))


def test_uncommitted_changes_make_it_a_development_version(repository: Path) -> None:
    git(repository, "tag", "v1.2.3")
    (repository / "LICENSE").write_text("another")
    git(repository, "add", "LICENSE")
    assert re.fullmatch(rf"1\.2\.4\.dev0{NODE}\.d\d{{8}}", version_of(repository))


def test_a_shallow_clone_without_tags_has_a_version(repository: Path, tmp_path: Path) -> None:
    commit(repository)
    git(tmp_path, "clone", "--quiet", "--depth", "1", repository.as_uri(), "shallow")
    assert re.fullmatch(rf"0\.1\.0\.dev1{NODE}", version_of(tmp_path / "shallow"))


def test_a_tree_without_git_has_a_version(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    assert version_of(repository) == "0.1.0.dev0"


def test_an_archive_of_a_tag_has_the_version_of_the_tag(repository: Path, tmp_path: Path) -> None:
    git(repository, "tag", "v1.2.3")
    archive = tmp_path / "archive.tar"
    git(repository, "archive", "--output", str(archive), "HEAD")
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path / "unpacked"], check=True)
    assert version_of(tmp_path / "unpacked") == "1.2.3"


def test_the_package_states_the_installed_version() -> None:
    assert tableside.__version__ == metadata.version("tableside")
    assert Version(tableside.__version__)


def version_of(folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the version that a build of the tree would have."""
    return module(folder, "hatchling", "version", environment=environment).strip()
