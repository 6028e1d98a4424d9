"""Decoders accept or refuse any bytes: they raise only our errors, in bounded time and memory, and never crash.

A full run has eight times as many inputs. The environment variable `TABLESIDE_SOAK_INPUTS` sets another number of
inputs, such as 1000000, and `TABLESIDE_SOAK_SEED` selects other inputs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.decoders import DECODERS, decode, selecting_seeds
from scripts.bootstrap import ROOT

INPUTS = int(os.environ.get("TABLESIDE_SOAK_INPUTS", "0"))
SEED = os.environ.get("TABLESIDE_SOAK_SEED", "7")
USUAL, FULL = 20_000, 160_000
START_S_MAX = 300
INPUT_S_MAX = 0.002
"""The time per input in the timeout of the whole test."""


@pytest.mark.daily
@pytest.mark.server
def test_decoders_accept_or_refuse_any_bytes(full: bool, tmp_path: Path) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("atheris does not support this Python yet")
    runs = INPUTS or (FULL if full else USUAL)
    command = [sys.executable, "-m", "hostile.decoding", str(tmp_path), SEED, str(runs)]
    timeout_s = START_S_MAX + runs * INPUT_S_MAX
    done = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, timeout=timeout_s, check=False)
    log = done.stderr.decode(errors="replace")
    assert done.returncode == 0, [log[-4000:], *(fault.read_bytes()[:4096] for fault in tmp_path.glob("fault-*"))]
    assert int(re.findall("number_of_executed_units: (.*)", log)[0]) >= runs


def test_every_decoder_has_seeds() -> None:
    given = list(selecting_seeds())
    assert {one[0] for one in given} == set(range(len(DECODERS)))
    for one in given:
        decode(one)
