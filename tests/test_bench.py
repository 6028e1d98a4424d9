"""The benchmarks run, with figures that are plausible; what the figures are is not for a test to say."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_a_store_is_measured_against_its_driver(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    short = ["--seconds", "0.2", "--rounds", "1"]
    command = [sys.executable, "-m", "bench", "stores", "redis", *short, "--json", str(file)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    results = json.loads(file.read_text())["results"]
    assert {result["group"].rsplit(",")[0] for result in results} >= {"get of 1", "put of 1", "$inc of 1"}
    assert all(result["per_second"] > 0 and result["per_core"]["cores"]["server"] >= 0 for result in results)
    assert "service, Arrow" in run.stdout
