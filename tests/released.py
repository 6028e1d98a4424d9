"""A release of the tree as it is, made as its owners would make it."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from trees import commit, copied, git, module

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
    """Put an entry for a version at the top of the changelog, and commit it."""
    changelog = repository / "CHANGELOG.md"
    head, rest = changelog.read_text().split("\n## ", 1)
    changelog.write_text(f"{head}\n## [{version}] - 2026-01-02\n\n* What is new.\n\n## {rest}")
    commit(repository)


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """What `scripts/release` makes of the tree as it is, as version 1.2.3."""
    repository = copied(tmp_path_factory.mktemp("released") / "repository")
    git(repository, "init", "--quiet", "--initial-branch", "main")
    describe(repository, VERSION)
    git(repository, "tag", f"v{VERSION}")
    return Released(repository, module(repository, "scripts.releasing"))
