"""Prepare bills of materials: give `cyclonedx-py environment` an environment for one extra.

The environment contains only the metadata of the packages, copied from the locked environment that runs this script.
The script downloads nothing.
"""

import sys
import venv
from importlib.metadata import distribution, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "tableside"


def command(folder: Path, project_file: Path, extra: str) -> list[str]:
    """Create it in a folder, and return the command that prints the bill of materials of `tableside[extra]`."""
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    for name in packages_of(extra):
        metadata = site / f"{name}-0.dist-info" / "METADATA"  # cyclonedx-py reads the version from this file
        metadata.parent.mkdir()
        metadata.write_text(distribution(name).read_text("METADATA") or "")
    # Some packages declare their licence only as text. Validation takes most of the time: a test does it.
    options = ["--spec-version=1.6", "--output-reproducible", "--gather-license-texts", "--no-validate"]
    return [sys.executable, "-m", "cyclonedx_py", "environment", *options, f"--pyproject={project_file}", str(folder)]


def packages_of(extra: str) -> set[str]:
    """Return the packages that `tableside[extra]` installs on this Python version and platform."""
    todo, done = {(PROJECT, ""), (PROJECT, extra)}, set()
    while todo:
        name, active = current = todo.pop()
        done.add(current)
        for requirement in map(Requirement, requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": active}):
                todo |= {(canonicalize_name(requirement.name), each) for each in ("", *requirement.extras)} - done
    return {name for name, _ in done} - {PROJECT}
