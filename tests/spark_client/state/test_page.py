"""The programs and commands of docs/state-store.md work with the configuration that the page shows."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from documentation.blocks import blocks
from scripts.bootstrap import ROOT
from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from spark_client.quick_start import SUBMIT_ARGUMENTS
from support.running import running
from tableside_spark.state.session_config import Options

PAGE = "docs/state-store.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
LATER = "N14228"


def program(*marks: str) -> str:
    """Return the page's programs that contain these words, concatenated."""
    found = [
        next(block.text for block in blocks(PAGE) if block.language == "python" and mark in block.text)
        for mark in marks
    ]
    return "\n".join(found)


def feed(directory: Path) -> None:
    directory.mkdir()
    for batch, tailnums in enumerate([["N14228", "N24211"], ["N14228"]]):
        rows = [json.dumps({"tailnum": tailnum, "distance": 1400}) for tailnum in tailnums]
        (directory / f"{batch}.json").write_text("\n".join(rows))


@pytest.mark.daily
@pytest.mark.jvm
@pytest.mark.usefixtures("small_spark")
def test_the_programs_and_commands_have_the_documented_effects(tmp_path: Path) -> None:
    ensure_jar(ensure_javac())
    feed(tmp_path / "flights")
    configuration = next(block.text for block in blocks(PAGE) if block.language == "yaml")
    (tmp_path / "tableside.yaml").write_text(configuration.replace("/var/lib/tableside", str(tmp_path / "data")))
    with running(tmp_path / "service", tmp_path / "tableside.yaml") as service:

        def here(text: str) -> str:
            text = text.replace("http://127.0.0.1:8080", service.url).replace(
                "/data/flights", str(tmp_path / "flights")
            )
            return text.replace("/checkpoints", str(tmp_path)).replace("batch_id=41", "batch_id=0")

        started = here(program("state.configure"))
        started = started.replace(".json(", '.option("maxFilesPerTrigger", 1).json(')
        started = started.replace(".start()", ".trigger(availableNow=True).start()")
        script = tmp_path / "page.py"
        looked = here(program("State(", "state.export"))
        script.write_text(f"{started}\nquery.awaitTermination()\n{looked}\nspark.stop()\n")
        environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": SUBMIT_ARGUMENTS}
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert "|{N14228}|" in done.stdout.replace(" ", "")
        [identity] = set(re.findall(r"^([0-9a-f-]{36}) \S+counts \(0,\)$", done.stdout, re.MULTILINE))

        commands = next(block.text for block in blocks(PAGE) if block.language == "sh" and "list" in block.text)
        answers = []
        for line in commands.splitlines():
            words = shlex.split(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", identity, line))
            command = [sys.executable, *words[1:], "--url", service.url]
            answers.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
        assert identity in answers[0]
        assert identity in answers[1]
        again = [sys.executable, *shlex.split(commands.splitlines()[0])[1:], "--url", service.url]
        assert identity not in subprocess.run(again, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_settings_of_the_page_are_the_providers() -> None:
    [table] = re.findall(r"\| `spark\.tableside\.state\.…` \|.*?\n\n", TEXT, re.DOTALL)
    named = {name for line in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert named == set(Options.__annotations__)
