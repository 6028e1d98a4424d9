"""One jar of the state store serves every version of Spark that its page lists."""

import re
from pathlib import Path

import pytest

from scripts.bootstrap import ROOT
from scripts.state_jar import SOURCES, compile_java, find_spark_jars, sources
from servers.install import ensure_packages
from servers.jdk import ensure_javac
from spark_client.versions.cases import FEATURES, NEWEST, OLDER, has

[STATE_STORE] = [feature for feature in FEATURES if feature.name == "State store"]
SERVED = [version for version in OLDER if has(STATE_STORE, version)]


@pytest.mark.jvm
@pytest.mark.full
@pytest.mark.parametrize("version", SERVED)
def test_the_classes_are_the_same_for_an_older_spark(version: str, tmp_path: Path) -> None:
    newest = find_spark_jars()
    assert newest is not None
    assert compiled(tmp_path / version, ensure_packages(f"pyspark-{version}") / "pyspark" / "jars") == compiled(
        tmp_path / NEWEST, newest
    )


def compiled(folder: Path, jars: Path) -> dict[str, bytes]:
    """Compile the sources against the jars of a Spark, whose interface may lack methods, and return the classes."""
    files = []
    for source in sources():
        file = folder / "sources" / source.relative_to(SOURCES)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(re.sub(r"(?m)^ *@Override$", "", source.read_text(encoding="utf-8")))
        files.append(file)
    classes = folder / "classes"
    classes.mkdir()
    compile_java(ensure_javac(), files, classes, f"{jars}/*")
    return {str(file.relative_to(classes)): file.read_bytes() for file in classes.rglob("*.class")}


def test_the_page_lists_the_versions() -> None:
    page = (ROOT / "docs" / "state-store.md").read_text(encoding="utf-8")
    assert f"| {', '.join([*SERVED, NEWEST])} | yes |" in page
