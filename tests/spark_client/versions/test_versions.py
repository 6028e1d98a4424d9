"""The client works with every supported version of PySpark, and names the version that a feature needs."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession

from documentation.blocks import blocks
from scripts import bootstrap
from scripts.bootstrap import ROOT
from servers.install import ensure_command, ensure_packages
from spark_client.versions.cases import FEATURES, NEWEST, OLDER, has, nodes
from tableside_spark import register, state, versions
from tableside_spark.versions import PySparkVersionError

END_MAX_S = 1_800
PAGE = "docs/spark.md"


@pytest.mark.jvm
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(OLDER[0], marks=pytest.mark.daily),
        *(pytest.param(version, marks=pytest.mark.full) for version in OLDER[1:]),
    ],
)
def test_every_feature_works(version: str, tmp_path: Path) -> None:
    # The warnings are those of PySpark's own modules.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", f"--basetemp={tmp_path / 'cases'}"]
    packages = ensure_packages(f"pyspark-{version}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *nodes(version)],
        cwd=ROOT,
        env=environment(version, packages),
        capture_output=True,
        text=True,
        timeout=END_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    assert list(packages.glob(f"pyspark-{version}.*.dist-info"))
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= len(nodes(version))


def test_every_case_exists() -> None:
    for node in nodes(NEWEST):
        file, _, name = node.partition("::")
        function = name.partition("[")[0]
        assert re.search(rf"^def {function}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), node


@pytest.mark.parametrize("feature", versions.FEATURES)
def test_an_older_pyspark_is_named_with_the_version_that_a_feature_needs(
    monkeypatch: pytest.MonkeyPatch, feature: str
) -> None:
    versions.require(feature)
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    expected = f"{feature} needs PySpark {versions.FEATURES[feature]} or later; this is PySpark 3.5.9"
    with pytest.raises(PySparkVersionError, match=f"^{re.escape(expected)}$"):
        versions.require(feature)


def test_an_older_pyspark_has_no_format_and_no_state_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(PySparkVersionError, match="the data source tableside needs PySpark"):
        register(None)  # type: ignore[arg-type]
    with pytest.raises(PySparkVersionError, match="the state store needs PySpark"):
        state.configure(SparkSession.builder, "http://127.0.0.1:8080", "state")


def test_the_page_has_every_feature_and_its_first_version() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    ordered = [*OLDER, NEWEST]
    for feature in FEATURES:
        available = [has(feature, version) for version in ordered]
        assert available == sorted(available), f"{feature.name} is missing in a later version"
        assert f"| {feature.name} | {ordered[available.index(True)]} |\n" in text
    [state_store] = [feature for feature in FEATURES if feature.name == "State store"]
    served = [version for version in ordered if has(state_store, version)]
    assert f"| {', '.join(served)} | yes |" in (ROOT / "docs" / "state-store.md").read_text(encoding="utf-8")


def test_the_page_shows_the_message() -> None:
    [block] = [block for block in blocks(PAGE) if "needs PySpark" in block.text]
    [feature] = [feature for feature in versions.FEATURES if block.text.startswith(feature)]
    assert block.text.strip().startswith(f"{feature} needs PySpark {versions.FEATURES[feature]} or later; this is ")


def test_the_extra_allows_the_tested_versions_only() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    [allowed] = [Requirement(text).specifier for text in extras["spark"] if Requirement(text).name == "pyspark"]
    assert pyspark.__version__.startswith(f"{NEWEST}.")
    assert all(allowed.contains(f"{version}.0") for version in (*OLDER, NEWEST))
    assert not any(allowed.contains(version) for version in ("3.4.4", "4.4.0"))


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
