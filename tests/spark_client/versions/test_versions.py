"""The client works with every supported version of PySpark, and names the version that a feature needs."""

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pyspark
import pytest
from packaging.requirements import Requirement

from documentation.blocks import blocks
from scripts.bootstrap import ROOT
from servers.install import ensure_packages
from spark_client.versions.cases import FEATURES, NEWEST, OLDER, has, nodes
from spark_client.versions.environments import environment
from tableside_spark import versions
from tableside_spark.versions import PySparkVersionError

LACKING = "tests/spark_client/versions/lacking.py"
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
def test_every_feature_works_or_names_the_version_that_it_needs(version: str, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    # The warnings are those of PySpark's own modules.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", f"--basetemp={tmp_path / 'cases'}"]
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *nodes(version), LACKING]
    packages = ensure_packages(f"pyspark-{version}")
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(version, packages),
        capture_output=True,
        text=True,
        timeout=END_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    outcomes = _outcomes(report)
    print(f"PySpark {_installed(packages)}: {json.dumps(outcomes)}")
    assert _installed(packages).startswith(f"{version}.")
    assert outcomes["passed"] >= len(nodes(version))


def test_every_case_exists() -> None:
    for node in nodes(NEWEST):
        file, _, name = node.partition("::")
        function = name.partition("[")[0]
        assert re.search(rf"^def {function}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), node


def _outcomes(report: Path) -> Counter[str]:
    cases = ET.parse(report).iter("testcase")
    return Counter("passed" if case.find("skipped") is None else "skipped" for case in cases)


def _installed(packages: Path) -> str:
    [metadata] = packages.glob("pyspark-*.dist-info")
    return metadata.name.removeprefix("pyspark-").removesuffix(".dist-info")


@pytest.mark.parametrize("feature", versions.FEATURES)
def test_an_older_pyspark_is_named_with_the_version_that_a_feature_needs(
    monkeypatch: pytest.MonkeyPatch, feature: str
) -> None:
    versions.require(feature)
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    expected = f"{feature} needs PySpark {versions.FEATURES[feature]} or later; this is PySpark 3.5.9"
    with pytest.raises(PySparkVersionError, match=f"^{re.escape(expected)}$"):
        versions.require(feature)


@pytest.mark.parametrize(("installed", "suffices"), [("4.0.5", False), ("4.1.0.dev1", True), ("4.10.0", True)])
def test_versions_are_compared_by_their_numbers(
    monkeypatch: pytest.MonkeyPatch, installed: str, suffices: bool
) -> None:
    monkeypatch.setattr(pyspark, "__version__", installed)
    assert versions.supports("the option pushdown") is suffices


def test_the_page_has_every_feature_and_its_first_version() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    ordered = [*OLDER, NEWEST]
    for feature in FEATURES:
        available = [has(feature, version) for version in ordered]
        assert available == sorted(available), f"{feature.name} is missing in a later version"
        assert f"| {feature.name} | {ordered[available.index(True)]} |\n" in text


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
