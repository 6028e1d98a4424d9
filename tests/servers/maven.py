"""Jars from Maven's public repository, listed in the `.pom.xml` files of this folder."""

import os
from pathlib import Path

from scripts import bootstrap

from .install import ensure_command, ensure_folder

HERE = Path(__file__).parent

SHORT = ("-XX:TieredStopAtLevel=1",)
"""An option for a JVM of minutes, in which the better compiler takes more time than it saves."""


def ensure_jars(name: str) -> Path:
    """Return a folder with the jars that `{name}.pom.xml` lists and their dependencies."""
    pom = HERE / f"{name}.pom.xml"
    return ensure_folder(name, (pom,), lambda folder: _copy_jars(name, pom, folder))


def plain_java() -> dict[str, str]:
    """Return the environment without the settings for Spark's Java, so that the `java` on PATH is used."""
    return {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "JAVA_TOOL_OPTIONS"}}


def _copy_jars(name: str, pom: Path, folder: Path) -> None:
    maven = ensure_command("mvn", "maven")
    where = ["--file", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    command = ["env", "--unset=JAVA_HOME", str(maven), "--batch-mode", "--no-transfer-progress", *where]
    bootstrap.step(f"fetching the jars of {name}", [*command, "-DincludeScope=runtime"])
