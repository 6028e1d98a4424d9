"""A release of the tree as it is, made as its owners would make it."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from documentation.blocks import blocks
from support.trees import commit, copied, git, module

VERSION = "1.2.3"


@dataclass(frozen=True)
class Released:
    """A repository whose commit is tagged, what its release put into `dist/`, and what was said of it."""

    repository: Path
    said: str

    @property
    def dist(self) -> Path:
        """Where it was put."""
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
        """Return what says what an extra installs."""
        return self.dist / f"tableside-{VERSION}.{extra}.cdx.json"


def describe(repository: Path, version: str) -> None:
    """Put an entry for a version at the top of the changelog, have the chart ask for its image, and commit both."""
    changelog = repository / "CHANGELOG.md"
    head, rest = changelog.read_text().split("\n## ", 1)
    changelog.write_text(f"{head}\n## [{version}] - 2026-01-02\n\n* What is new.\n\n## {rest}")
    chart = repository / "helm" / "Chart.yaml"
    chart.write_text(re.sub(r"(?m)^appVersion: .*$", f"appVersion: {version}", chart.read_text()))
    commit(repository)


def leave_behind(repository: Path) -> None:
    """Put into a repository's folder what is no part of it: files that git ignores, and an earlier release."""
    drafts = repository / "docs" / "drafts"
    drafts.mkdir()
    for name in (".gitignore", "draft.md"):
        (drafts / name).write_text("*\n")
    (repository / "dist").mkdir()
    (repository / "dist" / "tableside-1.2.2.tar.gz").write_text("of the release before")


def page_block(containing: str) -> str:
    """Return the commands of the page about releases that contain some words."""
    [block] = [block.text for block in blocks("docs/releasing.md") if containing in block.text]
    return block


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """What `scripts/release` makes of the tree as it is, as version 1.2.3."""
    repository = copied(tmp_path_factory.mktemp("released") / "repository")
    git(repository, "init", "--quiet", "--initial-branch", "main")
    describe(repository, VERSION)
    git(repository, "tag", f"v{VERSION}")
    leave_behind(repository)
    return Released(repository, module(repository, "scripts.releasing"))
