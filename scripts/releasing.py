"""Build the files of a release into `dist/`: the sdist, the wheel, the bills of materials and SHA-256 digests.

The same commit gives the same bytes. The script publishes nothing.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import yaml
from packaging.version import Version

from servers.jdk import ensure_javac

from . import bill_of_materials
from .bootstrap import PROJECT, ROOT, SetupError

DIST = ROOT / "dist"
EXTRAS = ("service", "spark")
DIGESTS = "SHA256SUMS"
HEADING = re.compile(r"(?m)^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?[^\n]*\n")

PUBLISH = """
To publish it:

  git tag --sign v{version} --message 'Tableside {version}'
  git push origin v{version}
  scripts/run uv publish dist/tableside-{version}.tar.gz dist/tableside-{version}-py3-none-any.whl

Then attach the other files in dist/ to the release of that tag, with the entry in CHANGELOG.md as its text."""

DO_NOT_PUBLISH = """
This is a development version: do not publish it. docs/releasing.md describes how to make a release."""


def main() -> None:
    """Build the release of the commit that is checked out, and print the remaining steps."""
    argparse.ArgumentParser(description="Build the files of a release into dist/.").parse_args()
    if changes := run("git", "status", "--porcelain"):
        raise SetupError(f"the tree has uncommitted changes:\n{changes}")
    environment = build_environment(os.environ)
    version = Version(tomllib.loads(PROJECT.read_text())["project"]["version"])
    if not version.is_devrelease:
        check_changelog_and_chart(version)
    ensure_javac()
    with tempfile.TemporaryDirectory() as temporary:
        clone, built = Path(temporary) / "clone", Path(temporary) / "built"
        # Ignored files are not in a clone. The build backend does not read every ignore file of git.
        run("git", "clone", "--quiet", str(ROOT), str(clone))
        arguments = ["--no-isolation", "--outdir", str(built), str(clone)]
        run(sys.executable, "-m", "build", *arguments, environment=environment)
        for extra in EXTRAS:
            command = bill_of_materials.command(Path(temporary) / extra, clone / "pyproject.toml", extra)
            bill = built / f"tableside-{version}.{extra}.cdx.json"
            run(*command, f"--output-file={bill}", environment=environment)
        write_digests(built)
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.move(built, DIST)
    print(f"dist/ contains tableside {version}, built from {run('git', 'rev-parse', 'HEAD')}:\n")
    print((DIST / DIGESTS).read_text(), end="")
    print(DO_NOT_PUBLISH if version.is_devrelease else PUBLISH.format(version=version))


def check_changelog_and_chart(version: Version) -> None:
    """Refuse a release without an entry in the changelog, or with a chart that uses another version of the image."""
    if not describes((ROOT / "CHANGELOG.md").read_text(), version):
        raise SetupError(f"CHANGELOG.md has no entry '## [{version}] - YYYY-MM-DD' that describes the changes")
    image = yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text())["appVersion"]
    if str(image) != str(version):
        raise SetupError(f"the appVersion in helm/Chart.yaml is {image}: it must be {version}")


def describes(changelog: str, version: Version) -> bool:
    """Return whether a changelog has an entry for a version, with a date and a description."""
    _, *parts = HEADING.split(changelog)
    entries = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return any(name == str(version) and date and body.strip() for name, date, body in entries)


def build_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return variables that set the time of all files to the commit's, and make a build without the jar fail."""
    seconds = run("git", "log", "-1", "--format=%ct")
    return {**inherited, "SOURCE_DATE_EPOCH": seconds, "TABLESIDE_STATE_JAR": "required"}


def write_digests(folder: Path) -> None:
    """Write the digests of all files in a folder, in the format of `sha256sum --check`."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())]
    (folder / DIGESTS).write_text("".join(lines))


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a command in the tree and return its output. Raise `SetupError` if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise SetupError(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.rstrip()


if __name__ == "__main__":
    try:
        main()
    except SetupError as problem:
        sys.exit(f"release: {problem}")
