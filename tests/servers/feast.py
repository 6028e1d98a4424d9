"""Feast in a folder below `.venv`, for Python processes that have the folder first on their path."""

import os

from scripts.bootstrap import ROOT

from .install import ensure_packages


def feast_environment() -> dict[str, str]:
    """Return the environment of a process that can import Feast, `tests` and `bench`. Install Feast the first time."""
    path = os.pathsep.join(map(str, (ensure_packages("feast"), ROOT / "tests", ROOT)))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**inherited, "PYTHONPATH": path, "FEAST_USAGE": "False"}
