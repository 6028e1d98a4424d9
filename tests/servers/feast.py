"""Feast in a folder below `.venv`, for Python processes that have the folder first on their path."""

import os
from pathlib import Path

from scripts import bootstrap
from scripts.bootstrap import ROOT

from .install import ensure_folder

LOCKED = ROOT / "requirements" / "feast.txt"


def feast_environment() -> dict[str, str]:
    """Return the environment of a process that can import Feast, `tests` and `bench`. Install Feast the first time."""
    folder = ensure_folder("feast", (LOCKED,), _install)
    path = os.pathsep.join(map(str, (folder, ROOT / "tests", ROOT)))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**inherited, "PYTHONPATH": path, "FEAST_USAGE": "False"}


def _install(folder: Path) -> None:
    arguments = ["--no-deps", "--require-hashes", "--requirement", str(LOCKED), "--target", str(folder)]
    bootstrap.step(
        "installing Feast (large: minutes, not seconds)", [*bootstrap.pip(bootstrap.UV.exists()), *arguments]
    )
