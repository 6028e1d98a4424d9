"""Deleted, moved and copied checkpoints, lost records, and state that is read as a table."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_client.sessions import jvm
from spark_client.state.inputs import FILES, HALF
from spark_client.state.oracle import Oracle
from spark_client.state.providers import Settings, configured, ours, query_id, state_session
from spark_client.state.shape_runs import Run, Trial
from spark_client.state.shapes import Rows, Shape, named
from spark_client.state.suite import TABLE
from support.running import Service
from tableside_client import Client
from tableside_spark.state import State
from tableside_spark.state.__main__ import main

pytestmark = jvm("state")

SHAPES = named("counted update", "windows append", "joined left", "sessions append")
STORES = ["left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"]
READINGS: list[tuple[str, dict[str, str]]] = [
    ("counted update", {}),
    ("counted update", {"batchId": "2"}),
    ("windows append", {"batchId": "3"}),
    ("sessions append", {"batchId": "2"}),
    ("joined left", {"joinSide": "left", "batchId": "3"}),
    ("joined left", {"joinSide": "right"}),
    *(("joined left", {"storeName": store, "batchId": "2"}) for store in STORES),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with state_session("local[2]") as started:
        yield started


in_the_default_format = pytest.mark.parametrize("settings", [2], ids=["v2"], indirect=True)
"""For tests that depend little on the checkpoint format."""


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.daily), 2], ids=["v1", "v2"])
def settings(state_service: Service, request: pytest.FixtureRequest) -> Settings:
    return ours(state_service.url, TABLE, request.param)


@pytest.fixture(scope="module")
def trial(spark: SparkSession, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A trial whose queries have read all files."""
    done = Trial(spark, tmp_path_factory.mktemp("restart"), settings)
    runs = done.run(SHAPES)
    assert [run.failure for run in runs.values()] == [""] * len(SHAPES)
    return done


def state(spark: SparkSession, checkpoint: Path, options: dict[str, str]) -> Rows:
    reader = spark.read.format("statestore").options(**options)
    return sorted(map(str, reader.load(str(checkpoint)).collect()))


@pytest.mark.parametrize(("name", "options"), READINGS)
def test_state_is_read_as_a_table_like_sparks_state(
    trial: Trial, oracle: Oracle, name: str, options: dict[str, str]
) -> None:
    [shape] = named(name)
    oracle.asked(trial.spark, SHAPES)
    expected = state(trial.spark, oracle.checkpoints[name], options)
    with configured(trial.spark, trial.settings):
        assert state(trial.spark, trial.checkpoint(shape), options) == expected
    assert expected


@in_the_default_format
def test_a_new_checkpoint_at_the_path_of_a_deleted_one_starts_empty(
    spark: SparkSession, settings: Settings, oracle: Oracle, tmp_path: Path
) -> None:
    [shape] = named("counted update")
    trial = Trial(spark, tmp_path, settings)
    before = trial.run([shape])
    old = query_id(trial.checkpoint(shape))
    shutil.rmtree(trial.checkpoint(shape))
    shutil.rmtree(trial.inputs.folder)
    assert trial.run([shape]) == before == oracle.asked(spark, [shape])
    assert query_id(trial.checkpoint(shape)) != old


@in_the_default_format
def test_a_moved_checkpoint_continues(spark: SparkSession, settings: Settings, oracle: Oracle, tmp_path: Path) -> None:
    [shape] = named("windows update")
    before, runs = Trial(spark, tmp_path / "before", settings), {shape.name: Run()}
    before.files(0, HALF, [shape], runs)
    after = Trial(spark, tmp_path / "after", settings, reads=before.inputs)
    shutil.move(before.checkpoint(shape), after.checkpoint(shape))
    after.files(HALF, FILES, [shape], runs)
    assert runs == oracle.asked(spark, [shape])


@dataclass(frozen=True)
class Copied:
    """A query that stopped half-way, and a copy of its checkpoint."""

    original: Path
    copy: Path
    trial: Trial
    runs: dict[str, Run]
    shape: Shape

    def failure(self, checkpoint: Path) -> str:
        """Continue from a checkpoint to the end of the input, and return the failure."""
        runs = {self.shape.name: Run(dict(self.runs[self.shape.name].batches))}
        trial = replace(self.trial, folder=checkpoint.parents[1], reads=self.trial.inputs)
        assert trial.checkpoint(self.shape) == checkpoint
        trial.files(HALF, FILES, [self.shape], runs)
        self.runs.update(runs)
        return runs[self.shape.name].failure


@pytest.fixture
def copied(spark: SparkSession, settings: Settings, tmp_path: Path) -> Copied:
    [shape] = named("windows update")
    trial, runs = Trial(spark, tmp_path / "original", settings), {shape.name: Run()}
    trial.files(0, HALF, [shape], runs)
    original, copy = trial.checkpoint(shape), Trial(spark, tmp_path / "copy", settings).checkpoint(shape)
    shutil.copytree(original, copy)
    return Copied(original, copy, trial, runs, shape)


def test_a_copy_of_a_checkpoint_is_refused_and_the_original_continues(copied: Copied, oracle: Oracle) -> None:
    failure = copied.failure(copied.copy)
    assert f"checkpoint file:{copied.copy} is a copy of file:{copied.original}" in failure
    assert "tableside_spark.state move" in failure
    assert copied.failure(copied.original) == ""
    assert copied.runs == oracle.asked(copied.trial.spark, [copied.shape])


@in_the_default_format
def test_a_copy_continues_after_it_has_been_chosen(
    copied: Copied, state_service: Service, oracle: Oracle, capsys: pytest.CaptureFixture[str]
) -> None:
    query = query_id(copied.copy)
    assert main(["move", query, str(copied.copy), "--table", TABLE, "--url", state_service.url]) == 0
    assert "is a copy of" in copied.failure(copied.original)
    assert copied.failure(copied.copy) == ""
    assert copied.runs == oracle.asked(copied.trial.spark, [copied.shape])


@in_the_default_format
def test_a_checkpoint_continues_under_another_name_of_its_directory(copied: Copied, oracle: Oracle) -> None:
    shutil.rmtree(copied.copy)
    copied.copy.symlink_to(copied.original)
    assert copied.failure(copied.copy) == ""
    assert copied.runs == oracle.asked(copied.trial.spark, [copied.shape])
    assert not list(copied.original.glob(".tableside*"))


def test_a_query_continues_without_a_lost_chunk_of_its_snapshot(
    spark: SparkSession, settings: Settings, state_service: Service, oracle: Oracle, tmp_path: Path
) -> None:
    [shape] = named("counted update")
    trial, runs = Trial(spark, tmp_path, {**settings, "tableside.state.deltas_max": "1"}), {shape.name: Run()}
    trial.files(0, HALF, [shape], runs)
    with Client(state_service.url) as client, State(client, TABLE) as states:
        for place in states.query(query_id(trial.checkpoint(shape))).places():
            newest = states.contents(place).snapshots[-1]
            snapshot = place.snapshot(newest.number, newest.name)
            client.table(TABLE).delete([snapshot.place, f"{snapshot.item}/000000"])
    trial.files(HALF, FILES, [shape], runs)
    assert runs == oracle.asked(spark, [shape])


@in_the_default_format
def test_a_table_without_the_state_is_named_and_the_checkpoint_continues_on_the_right_table(
    spark: SparkSession, settings: Settings, state_service: Service, oracle: Oracle, tmp_path: Path
) -> None:
    [shape] = named("counted update")
    trial, runs = Trial(spark, tmp_path, settings), {shape.name: Run()}
    trial.files(0, HALF, [shape], runs)
    for table, why in {"stat": "does not exist (table_not_found)", "plain": "has no state of query"}.items():
        wrong, failed = replace(trial, settings={**settings, "tableside.state.table": table}), {shape.name: Run()}
        wrong.files(HALF, FILES, [shape], failed)
        assert f"table {table} at {state_service.url} {why}" in failed[shape.name].failure
        assert "and keep the checkpoint" in failed[shape.name].failure
        assert "clear the existing checkpoint" not in failed[shape.name].failure
    trial.files(HALF, FILES, [shape], runs)
    assert runs == oracle.asked(spark, [shape])
