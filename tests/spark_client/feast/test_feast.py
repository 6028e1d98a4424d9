"""The online store of Feast, in an environment of its own: our cases, the page, and Feast's own tests."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from documentation.blocks import blocks
from scripts.bootstrap import ROOT
from servers.feast import feast_environment
from support.consoles import SAID_URL, commands
from support.running import Service, running

CASES = "tests/spark_client/feast/cases.py"
PAGE = "docs/feast.md"
END_MAX_S = 900
ONLINE = "tests/integration/online_store/"
OWN_TESTS = [
    *(f"{ONLINE}test_{name}.py" for name in ("universal_online", "push_features_to_online_store", "universal_e2e")),
    f"{ONLINE}test_universal_online_types.py",
    "tests/integration/materialization/test_universal_materialization.py",
]
"""The tests of Feast that run against every online store. Those for Redis and SQLite use our store too."""

LANGUAGES = ("console", "python", "text")

pytestmark = pytest.mark.server


def test_rows_are_written_and_read(service: Service, tmp_path: Path) -> None:
    config = tmp_path / "strict.yaml"
    config.write_text("stores:\n  a: {kind: memory}\ntables:\n  other: {store: a}\n")
    with running(tmp_path / "strict", config) as strict:
        urls = {"TABLESIDE_URL": service.url, "TABLESIDE_STRICT_URL": strict.url}
        print(run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", CASES, environment=urls))


@pytest.mark.daily
def test_the_program_of_the_page_prints_its_output(tmp_path: Path) -> None:
    said = {language: [block.text for block in blocks(PAGE) if block.language == language] for language in LANGUAGES}
    for command in [each for text in said["console"] for each in commands(text)]:
        (tmp_path / command.line.removeprefix("cat ")).write_text(command.printed)
    settings = tmp_path / "feature_store.yaml"
    with running(tmp_path / "service", tmp_path / "features.yaml") as service:
        settings.write_text(settings.read_text().replace(SAID_URL, service.url))
        printed = [run("-c", program, folder=tmp_path) for program in said["python"]]
    shown = "".join(re.sub(r"\x1b\[\d*m", "", text) for text in printed)
    assert [line for line in shown.splitlines() if line.startswith("{")] == "".join(said["text"]).splitlines()


@pytest.mark.full
@pytest.mark.parametrize("record_per", ["view", "entity"])
def test_feasts_own_tests_pass(service: Service, tmp_path: Path, record_per: str) -> None:
    """FEAST_SOURCE is a checkout of Feast: its packages do not contain its tests."""
    source = os.environ.get("FEAST_SOURCE")
    if source is None:
        pytest.skip("set FEAST_SOURCE to a checkout of Feast")
    (tmp_path / "repositories.py").write_text(REPOSITORIES.format(url=service.url, record_per=record_per))
    # The others need containers.
    options = [
        "--integration",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-k",
        "not dynamo",
        f"--basetemp={tmp_path / 't'}",
    ]
    environment = {"FULL_REPO_CONFIGS_MODULE": "repositories", "FEAST_IS_LOCAL_TEST": "True"}
    printed = run(
        *("-m", "pytest", *options, *OWN_TESTS),
        folder=Path(source) / "sdk" / "python",
        path=[str(tmp_path)],
        environment=environment,
    )
    print(printed[printed.rindex("short test summary info") :])


REPOSITORIES = """
from tests.universal.feature_repos.universal.data_sources.file import FileDataSourceCreator

AVAILABLE_OFFLINE_STORES = [("local", FileDataSourceCreator)]
STORE = {{"type": "tableside_client.feast.TablesideOnlineStore", "url": "{url}", "record_per": "{record_per}"}}
AVAILABLE_ONLINE_STORES = {{"redis": (STORE, None), "sqlite": (STORE, None)}}
"""


def run(
    *arguments: str, folder: Path = ROOT, path: list[str] | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Run Python with Feast, and return what it prints."""
    feast = feast_environment()
    chosen = {**feast, **(environment or {}), "PYTHONPATH": os.pathsep.join([*(path or []), feast["PYTHONPATH"]])}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=chosen, capture_output=True, text=True, timeout=END_MAX_S, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-10_000:]
    return done.stdout
