"""A release of the current tree, made by `scripts/release`."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from documentation.blocks import blocks
from support.trees import commit, copied, git, module

VERSION = "1.2.3"


@dataclass(frozen=True)
class Released:
    """A repository with a tagged commit and its release in `dist/`, and the output of `scripts/release`."""

    repository: Path
    said: str

    @property
    def dist(self) -> Path:
        """The folder with the files of the release."""
        return self.repository / "dist"

    @property
    def wheel(self) -> Path:
        """The wheel."""
        [wheel] = self.dist.glob("*.whl")
        return wheel

    @property
    def sdist(self) -> Path:
        """The sdist."""
        [sdist] = self.dist.glob("*.tar.gz")
        return sdist

    def bill(self, extra: str) -> Path:
        """Return the bill of materials of an extra."""
        return self.dist / f"tableside-{VERSION}.{extra}.cdx.json"


def describe(repository: Path, version: str) -> None:
    """Set the version of the project and of the chart's image, add an entry to the changelog, and commit."""
    set_version(repository, version)
    changelog = repository / "CHANGELOG.md"
    head, rest = changelog.read_text().split("\n## ", 1)
    changelog.write_text(f"{head}\n## [{version}] - 2026-01-02\n\n* What is new.\n\n## {rest}")
    chart = repository / "helm" / "Chart.yaml"
    chart.write_text(re.sub(r"(?m)^appVersion: .*$", f"appVersion: {version}", chart.read_text()))
    commit(repository)


def set_version(repository: Path, version: str) -> None:
    """Set the version of the project."""
    project = repository / "pyproject.toml"
    project.write_text(re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text(), count=1))


def leave_behind(repository: Path) -> None:
    """Add ignored files and an earlier release to the folder of a repository."""
    drafts = repository / "docs" / "drafts"
    drafts.mkdir()
    for name in (".gitignore", "draft.md"):
        (drafts / name).write_text("*\n")
    (repository / "dist").mkdir()
    (repository / "dist" / "tableside-1.2.2.tar.gz").write_text("of the release before")


def page_block(containing: str) -> str:
    """Return the code block of docs/releasing.md that contains a text."""
    [block] = [block.text for block in blocks("docs/releasing.md") if containing in block.text]
    return block


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """The release of the current tree as version 1.2.3."""
    repository = copied(tmp_path_factory.mktemp("released") / "repository")
    git(repository, "init", "--quiet", "--initial-branch", "main")
    describe(repository, VERSION)
    git(repository, "tag", f"v{VERSION}")
    leave_behind(repository)
    return Released(repository, module(repository, "scripts.releasing"))
