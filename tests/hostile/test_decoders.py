"""Whatever bytes come, a decoder takes them or refuses them as ours, in bounded time and memory, and nothing crashes.

A full run has eight times as many inputs. The environment variable `TABLESIDE_SOAK_INPUTS` sets another number of them
for each decoder (1000000, say), and `TABLESIDE_SOAK_SEED` sets which ones come.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.decoders import DECODERS, decode
from hostile.seeds import seeds
from scripts.bootstrap import ROOT

INPUTS = int(os.environ.get("TABLESIDE_SOAK_INPUTS", "0"))
SEED = os.environ.get("TABLESIDE_SOAK_SEED", "7")
USUAL = {"connections": 3_000, "arrow batches": 40_000, "arrow tables": 40_000, "headers": 10_000}
USUAL_INPUTS = 20_000
SHARE = 8
"""An ordinary run has one in so many of these inputs."""

START_S_MAX = 300
INPUT_S_MAX = 0.002
"""How long an input takes at the most, as far as the test as a whole waits for them."""

TESTS = ROOT / "tests"


@pytest.mark.server
@pytest.mark.parametrize("name", list(DECODERS))
def test_a_decoder_takes_what_comes_or_refuses_it(name: str, full: bool, tmp_path: Path) -> None:
    runs = INPUTS or USUAL.get(name, USUAL_INPUTS) // (1 if full else SHARE)
    command = [sys.executable, "-m", "hostile.decoding", name, str(tmp_path), str(runs), SEED]
    run = subprocess.run(
        command, cwd=TESTS, capture_output=True, text=True, timeout=START_S_MAX + runs * INPUT_S_MAX, check=False
    )
    left = [file.read_bytes()[:4096] for file in tmp_path.iterdir() if file.is_file()]
    assert (run.returncode, left) == (0, []), run.stderr[-4000:]


@pytest.mark.server
def test_a_fault_of_a_decoder_is_seen(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    command = [sys.executable, "-m", "hostile.decoding", "faulty", str(tmp_path), "100000", SEED]
    run = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=START_S_MAX, check=False)
    assert run.returncode != 0
    assert "ZeroDivisionError" in run.stdout + run.stderr
    assert [file.read_bytes()[:1] for file in tmp_path.iterdir() if file.is_file()] == [b"\xff"]


@pytest.mark.parametrize("name", list(DECODERS))
def test_seeds_are_of_every_kind(name: str) -> None:
    given = list(seeds(name))
    assert len(given) >= 2
    for one in given:
        decode(name, one)
