"""The benchmarks run and produce plausible figures. No test depends on the size of a figure."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bootstrap import ROOT

BENCHMARKS = {
    "stores redis --seconds 0.2": ("daily", {"service, Arrow"}),
    "batch --matching 'memory, put of 1,000' --seconds 0.1": (None, {"key and value", "ttl_s", "1 bad row in 1,000"}),
    f"batch --matching 'memory, get of 1,000, JSON' --seconds 0.1 --against {ROOT}": ("daily", {"fields"}),
    "python --seconds 0.1": ("daily", {"aiohttp", "AsyncClient", "urllib3", "Client", "httpx", "redis.asyncio"}),
    "state --keys 2000 --batches 5 --heaps-mib 1024 --maintenance-s 60 --ways rocksdb bounded": (
        "full",
        {"Spark, RocksDB, changelog", "Tableside, memory: bounded"},
    ),
    "compare --seconds 0.2": ("full", {"Tableside", "Tableside, 2 workers: GET", "webdis", "redis-py"}),
    "single policies orders replace frames overload --seconds 0.1": ("full", {"GET, RocksDB", "enrich, pandas"}),
    "spark scan --rows 2000": ("full", {"replace", "4 splits"}),
    "feast --seconds 0.1 --rounds 1": ("full", {"Redis", "Redis, skip_dedup", "Tableside"}),
    "refusals --seconds 0.1": ("full", {"none", "unknown, as long as a known one", "signed: expired"}),
    "hostile --tables memory --matching 'GET /' --seconds 0.5": ("full", {"GET /livez", "GET /metrics", "GET /docs"}),
}
"""The arguments of benchmarks, how often they are tested (None: in each run), and some of the ways they measure."""


@pytest.mark.server
@pytest.mark.parametrize(
    ("arguments", "ways"),
    [
        pytest.param(arguments, ways, marks=[getattr(pytest.mark, often)] if often else [])
        for arguments, (often, ways) in BENCHMARKS.items()
    ],
)
def test_a_benchmark_measures_each_way(tmp_path: Path, arguments: str, ways: set[str]) -> None:
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", *shlex.split(arguments), "--rounds", "1", "--json", str(file)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    results = json.loads(file.read_text())["results"]
    assert {result["way"] for result in results} >= ways
    assert all(result["per_second"] > 0 for result in results)
