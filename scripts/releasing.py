"""Build what a release publishes, into `dist/`: sdist, wheel, bills of materials, digests. Publishes nothing itself.

The same commit gives the same bytes. Knows nothing of what the packages do.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml
from packaging.version import Version

from servers.jdk import ensure_javac

from . import bill_of_materials, changelog, distributions
from .bootstrap import ROOT, SetupError

DIST = ROOT / "dist"
EXTRAS = ("service", "spark")
DIGESTS = "SHA256SUMS"

TO_PUBLISH = """
To publish it:

  git push origin v{version}
  scripts/run uv publish dist/tableside-{version}.tar.gz dist/tableside-{version}-py3-none-any.whl

and give the other files of dist/ to the release of that tag, with the entry of CHANGELOG.md as its text."""

NOT_TO_PUBLISH = """
A development version is not published. docs/releasing.md says how a commit becomes a release."""


def main() -> None:
    """Build, check and describe the release of the commit that is checked out."""
    argparse.ArgumentParser(description="Build what a release publishes, into dist/.").parse_args()
    refuse_changes()
    environment = build_environment(os.environ)
    version = Version(run(sys.executable, "-m", "hatchling", "version", environment=environment))
    refuse_undescribed(version)
    refuse_another_image(version)
    ensure_javac()
    with tempfile.TemporaryDirectory() as temporary:
        clone, built = Path(temporary) / "clone", Path(temporary) / "built"
        # What is ignored, by whatever rule of git, is not in a clone: the build does not know all of these rules.
        run("git", "clone", "--quiet", str(ROOT), str(clone))
        build(clone, built, version, environment)
        write_digests(built)
        replace(built, DIST)
    print(f"dist/ holds tableside {version}, built from {run('git', 'rev-parse', 'HEAD')}:\n")
    print((DIST / DIGESTS).read_text(), end="")
    print(NOT_TO_PUBLISH if version.is_devrelease else TO_PUBLISH.format(version=version))


def refuse_changes() -> None:
    """Refuse a tree that nobody could build again from a commit."""
    if changed := run("git", "status", "--porcelain"):
        raise SetupError(f"the tree has changes that are in no commit:\n{changed}")


def refuse_undescribed(version: Version) -> None:
    """Refuse to release what no entry of the changelog describes."""
    if not version.is_devrelease and not changelog.describes((ROOT / "CHANGELOG.md").read_text(), version):
        raise SetupError(f"CHANGELOG.md has no entry '## [{version}] - YYYY-MM-DD' that says what is new")


def refuse_another_image(version: Version) -> None:
    """Refuse to release with a chart that asks for the image of another version."""
    asked = yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text())["appVersion"]
    if not version.is_devrelease and str(asked) != str(version):
        raise SetupError(f"helm/Chart.yaml asks for the image of {asked}: its appVersion has to be {version}")


def build_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return what the build sees: no version from outside, the commit's time for all files; no jar, no build."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("SETUPTOOLS_SCM_")}
    return kept | {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct"), "TABLESIDE_STATE_JAR": "required"}


def build(tree: Path, folder: Path, version: Version, environment: Mapping[str, str]) -> None:
    """Build the sdist, from it the wheel, and the bill of materials of each extra that people install."""
    arguments = ["--no-isolation", "--outdir", str(folder), str(tree)]
    run(sys.executable, "-m", "build", *arguments, environment=environment)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    if faults := distributions.faults(wheel, sdist, version):
        raise SetupError("\n".join(faults))
    locked = (tree / "requirements" / "constraints.txt").read_text()
    for extra in EXTRAS:
        bill = bill_of_materials.bill(wheel, extra, locked, environment)
        (folder / f"tableside-{version}.{extra}.cdx.json").write_text(bill)


def write_digests(folder: Path) -> None:
    """Write the digests of all files of a folder as `sha256sum --check` reads them."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())]
    (folder / DIGESTS).write_text("".join(lines))


def replace(built: Path, dist: Path) -> None:
    """Put what was built in the place of what an earlier release left there."""
    dist.mkdir(exist_ok=True)
    for old in [*dist.glob("tableside-*"), *dist.glob(DIGESTS)]:
        old.unlink()
    for file in built.iterdir():
        shutil.move(file, dist / file.name)


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a command on the tree and return what it prints; where it fails, that is why there is no release."""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise SetupError(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.rstrip()


if __name__ == "__main__":
    try:
        main()
    except SetupError as problem:
        sys.exit(f"release: {problem}")
