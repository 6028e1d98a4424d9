"""Deleted, moved and copied checkpoints, lost records, and state that is read as a table."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_client.sessions import jvm
from spark_client.state.providers import Settings, configured, ours, query_id, state_session
from spark_client.state.shape_runs import FILES, HALF, Oracle, Run, Trial
from spark_client.state.shapes import Rows, Shape, named
from spark_client.state.suite import TABLE
from support.running import Service
from tableside_spark.state.__main__ import main

pytestmark = jvm("state")

SHAPES = named("counted update", "windows append", "joined left", "sessions append")
READINGS: list[tuple[str, dict[str, str]]] = [
    ("counted update", {}),
    ("windows append", {"batchId": "3"}),
    ("sessions append", {"batchId": "2"}),
    ("joined left", {"joinSide": "left", "batchId": "3"}),
    ("joined left", {"storeName": "right-keyWithIndexToValue", "batchId": "2"}),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with state_session("local[2]") as started:
        yield started


@pytest.fixture(scope="module")
def settings(state_service: Service) -> Settings:
    return ours(state_service.url, TABLE, 2)


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


def test_a_new_checkpoint_starts_empty_and_a_moved_one_continues(
    spark: SparkSession, settings: Settings, oracle: Oracle, tmp_path: Path
) -> None:
    [shape] = named("windows update")
    before = Trial(spark, tmp_path / "before", settings)
    before.run([shape])
    old = query_id(before.checkpoint(shape))
    shutil.rmtree(before.folder)
    runs = {shape.name: Run()}
    before.files(0, HALF, [shape], runs)
    assert query_id(before.checkpoint(shape)) != old
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


def test_a_copy_continues_after_it_has_been_chosen(
    copied: Copied, state_service: Service, oracle: Oracle, capsys: pytest.CaptureFixture[str]
) -> None:
    query = query_id(copied.copy)
    assert main(["move", query, str(copied.copy), "--table", TABLE, "--url", state_service.url]) == 0
    assert "is a copy of" in copied.failure(copied.original)
    assert copied.failure(copied.copy) == ""
    assert copied.runs == oracle.asked(copied.trial.spark, [copied.shape])


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
