"""An older PySpark in a folder below `.venv`, for Python processes that have the folder first on their path."""

import os
import subprocess
import sys
from pathlib import Path

from scripts import bootstrap
from servers.install import ensure_command


def environment(version: str, packages: Path) -> dict[str, str]:
    """Return the environment of a process that uses these packages instead of the packages in `.venv`."""
    chosen = {"PYTHONPATH": str(packages), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if version == "3.5":
        chosen["JAVA_HOME"] = str(_ensure_java_17())
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SPARK_HOME"))}
    return inherited | chosen


def _ensure_java_17() -> Path:
    """Return a JAVA_HOME for PySpark 3.5, whose version of Arrow cannot use a later Java."""
    java = ensure_command("java", "openjdk-17-jre-headless", places="/usr/lib/jvm/*-17-*/bin")
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    assert bootstrap.java_version(printed) <= 17, "PySpark 3.5 needs Java 17: install openjdk-17-jre-headless"
    return java.resolve().parents[1]
