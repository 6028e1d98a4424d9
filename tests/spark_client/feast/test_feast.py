"""The online store of Feast, in an environment of its own: our cases and the page."""

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


def run(*arguments: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """Run Python with Feast, and return what it prints."""
    command = [sys.executable, *arguments]
    environment = {**feast_environment(), **(environment or {})}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=END_MAX_S, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-10_000:]
    return done.stdout
