"""Decoders accept or refuse any bytes: they raise only our errors, in bounded time and memory, and never crash.

A full run has eight times as many inputs. The environment variable `TABLESIDE_SOAK_INPUTS` sets another number of
inputs per decoder, such as 1000000, and `TABLESIDE_SOAK_SEED` selects other inputs.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from hostile.decoders import DECODERS, decode
from hostile.seeds import seeds
from scripts.bootstrap import ROOT

INPUTS = int(os.environ.get("TABLESIDE_SOAK_INPUTS", "0"))
SEED = os.environ.get("TABLESIDE_SOAK_SEED", "7")
SMALL = {"arrow batches": 40_000, "headers": 10_000}
"""Exceptions from `INPUTS_FULL`, because some decoders are slower and some have more code."""

INPUTS_FULL = 20_000
INPUTS_FAULTY = 100_000
SHARE = 8
"""A full run has this many times the inputs of a default run."""

START_S_MAX = 300
INPUT_S_MAX = 0.002
"""The time per input in the timeout of the whole test."""

TESTS = ROOT / "tests"


class Fuzzed(NamedTuple):
    """One decoder's process: the inputs it should get, its exit code, its output, and inputs that revealed a fault."""

    runs: int
    code: int
    log: str
    faults: list[bytes]


@pytest.fixture(scope="module")
def fuzzed(full: bool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Fuzzed]:
    """Fuzz every decoder, and one that has a fault."""
    if sys.version_info >= (3, 14):
        pytest.skip("atheris does not support this Python yet")
    folder = tmp_path_factory.mktemp("decoders")
    runs = {name: INPUTS or SMALL.get(name, INPUTS_FULL) // (1 if full else SHARE) for name in DECODERS}
    runs |= {"faulty": INPUTS_FAULTY}
    command = [sys.executable, "-m", "hostile.decoding", str(folder), SEED]
    command += [f"{name}={number}" for name, number in runs.items()]
    timeout_s = START_S_MAX + sum(runs.values()) * INPUT_S_MAX
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: _fuzzed(folder / name, runs[name], code) for name, code in json.loads(done.stdout).items()}


def _fuzzed(folder: Path, runs: int, code: int) -> Fuzzed:
    log = (folder / "log").read_text(errors="replace")
    return Fuzzed(runs, code, log, [file.read_bytes()[:4096] for file in (folder / "faults").iterdir()])


@pytest.mark.daily
@pytest.mark.server
@pytest.mark.parametrize("name", list(DECODERS))
def test_a_decoder_accepts_or_refuses_any_bytes(name: str, fuzzed: dict[str, Fuzzed]) -> None:
    assert (fuzzed[name].code, fuzzed[name].faults) == (0, []), fuzzed[name].log[-4000:]
    assert int(re.findall("number_of_executed_units: (.*)", fuzzed[name].log)[0]) >= fuzzed[name].runs


@pytest.mark.daily
@pytest.mark.server
def test_a_faulty_decoder_is_detected(fuzzed: dict[str, Fuzzed]) -> None:
    """Without this, the test above could not fail."""
    faulty = fuzzed["faulty"]
    assert faulty.code != 0
    assert "ZeroDivisionError" in faulty.log
    assert [fault[:1] for fault in faulty.faults] == [b"\xff"]


@pytest.mark.parametrize("name", list(DECODERS))
def test_seeds_are_of_every_kind(name: str) -> None:
    given = list(seeds(name))
    assert len(given) >= 2
    for one in given:
        decode(name, one)
