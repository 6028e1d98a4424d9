"""The README is correct: the demonstration runs, and its commands print the documented output."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from documentation.blocks import blocks
from documentation.page_run import PageRun
from scripts.bootstrap import ROOT
from servers.process import free_port
from spark_client.sessions import session
from support.consoles import SAID_URL

pytestmark = [pytest.mark.daily, pytest.mark.jvm, pytest.mark.xdist_group("documents")]

README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMONSTRATION_S = 600
FIGURES = re.compile(r"EQUAL: .*, ([\d,]+) figures")


@dataclass(frozen=True)
class Demonstration:
    """The demonstration's output, and the service that it left running."""

    printed: str
    url: str


def programs() -> list[str]:
    return [block.text for block in blocks("README.md") if block.language == "python"]


@pytest.fixture(scope="module")
def demonstration() -> Iterator[Demonstration]:
    """Run the demonstration to its end, and leave its service running for the tests of this module."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--keep", "--port", str(free_port())],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEMONSTRATION_S,
    )
    started = re.search(r"the service runs at (\S+),", done.stdout)
    stopped = re.search(r"^Stop: +kill (\d+)", done.stdout, re.MULTILINE)
    assert started is not None, done.stdout + done.stderr
    assert stopped is not None, done.stdout + done.stderr
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield Demonstration(done.stdout, started[1])
    finally:
        os.kill(int(stopped[1]), signal.SIGTERM)


def test_the_demonstration_compares_the_number_of_figures_in_the_readme(demonstration: Demonstration) -> None:
    compared = sum(int(number.replace(",", "")) for number in FIGURES.findall(demonstration.printed))
    assert f"compares all {compared:,} figures" in " ".join(README.split())
    assert "336,776 joined flights" in demonstration.printed
    assert "336,776 flights" in README


def test_the_demonstration_kills_the_service_and_ends_with_what_to_try(demonstration: Demonstration) -> None:
    assert demonstration.printed.count("KILLED the service") == 1
    for said in ("Shown: ", "/console", "curl "):
        assert said in demonstration.printed.rpartition("What it cost")[2]


def test_every_command_prints_the_output_of_the_readme(demonstration: Demonstration, tmp_path: Path) -> None:
    with PageRun(tmp_path, {}) as run:
        run.url = demonstration.url
        for block in blocks("README.md"):
            if block.language == "console":
                run.do(block)


def test_every_verb_of_the_command_line_is_shown() -> None:
    from tableside.cli import app

    verbs = {info.name or info.callback.__name__ for info in app.registered_commands if info.callback}
    shown = [
        block.text for page in ("quick-start", "command-line", "operations") for block in blocks(f"docs/{page}.md")
    ]
    assert verbs - set(re.findall(r"^(?:\$ )?tableside (\w+)", "".join(shown), re.MULTILINE)) == set()


def test_the_spark_example_runs(demonstration: Demonstration) -> None:
    example, _ = programs()
    with session("local[2]") as spark:
        flights = spark.createDataFrame([("N1", 100, "JFK"), ("N1", 50, "BOS"), ("N328AA", 7, "LAX")], FLIGHTS)
        names: dict[str, Any] = {"spark": spark, "flights": flights}
        exec(example.replace(SAID_URL, demonstration.url).replace('Table("aircraft"', 'Table("example"'), names)
        joined = {(row.tailnum, row.distance, row.flights) for row in names["counted"].collect()}
        assert joined == {("N1", 100, 2), ("N1", 50, 2), ("N328AA", 7, 1)}
        counted = {row.tailnum: (row.flights, row.miles) for row in _table(spark, demonstration.url).collect()}
        assert counted == {"N1": (2, 150), "N328AA": (1, 7)}


def test_the_python_example_runs(demonstration: Demonstration, capsys: pytest.CaptureFixture[str]) -> None:
    _, example = programs()
    exec(example.replace(SAID_URL, demonstration.url), {})
    assert capsys.readouterr().out == "{'visits': 1}\n"


FLIGHTS = "tailnum string, distance long, dest string"


def _table(spark: SparkSession, url: str) -> Any:
    source = spark.read.format("tableside").options(url=url, table="example", key="tailnum")
    return source.schema("tailnum string, flights long, miles long").load()
