"""Runs: batch writes with a text as their token. A finished run is not sent again, an unfinished one is exact."""

import datetime as dt
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit
from typer.testing import CliRunner

from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_cli import app
from tableside_client import Client
from tableside_client.runs import EVENTS_KEY, RUNS, Run
from tableside_spark import RunRefusedError, Table, TableWriteError, WriteSummary
from tableside_spark.plan.rows import PreparedRows
from tableside_spark.write import job
from tableside_spark.write.run_memory import TEXT_CHARACTERS_MAX, RunMemory, fingerprint

pytestmark = jvm("spark")

ZERO = {"n": 0}


class Killed(BaseException):
    """The job of a run was killed."""


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1), ("b", 2)], "k string, v int").coalesce(1)


def counted(table: Table, rows: DataFrame, token: Any, **how: Any) -> WriteSummary:
    summary: WriteSummary = table.update(rows, "k", {"$inc": {"n": lit(1)}}, default=ZERO, token=token, **how)
    return summary


def counted_with_kill(monkeypatch: pytest.MonkeyPatch, table: Table, rows: DataFrame, token: str) -> None:
    """Run a job that is killed after it has applied the row `a`."""
    run = job.run

    def run_part(write: Any, prepared: PreparedRows, this: Any) -> WriteSummary:
        run(write, PreparedRows(prepared.rows.where("k = 'a'"), prepared.grouping), this)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(job, "run", run_part)
        with pytest.raises(Killed):
            counted(table, rows, token)


def tableside(service: Service, *arguments: str) -> list[str]:
    result = CliRunner().invoke(app, [*arguments, "--url", service.url])
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def listed(service: Service, table: str) -> list[list[str]]:
    return [line.split("\t") for line in tableside(service, "runs", table)]


def test_twelve_daily_runs_the_first_day_again_and_an_older_day_count_once(
    service: Service, rows: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table("runs_daily", service.url)
    days = [f"events/2026-11-{day:02}" for day in range(1, 13)]
    for day in days:
        assert counted(table, rows, day).applied == 2
    again = counted(table, rows, days[0])
    assert again == WriteSummary(finished_before=True)
    assert "the run events/2026-11-01 finished at" in caplog.text
    assert counted(table, rows, "events/2026-10-31").applied == 2
    assert stored(service, table.name) == {"a": {"n": 13}, "b": {"n": 13}}
    found = listed(service, table.name)
    assert [run[0] for run in found] == [*days, "events/2026-10-31"]
    for _, operation, started, finished, count in found:
        assert (operation, count) == ("update", "2")
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", started)
        assert started <= finished
    tableside(service, "delete", table.name + RUNS, "--prefix", "run/", "--yes")
    assert not counted(table, rows, days[1]).finished_before


@pytest.mark.parametrize("others", [7, 8])
def test_a_killed_run_is_exact_or_refused_after_other_runs(
    others: int, service: Service, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"runs_killed_{others}", service.url)
    counted_with_kill(monkeypatch, table, rows, "killed")
    assert listed(service, table.name)[0][3:] == ["-", "-"]
    for number in range(others):
        counted(table, rows.where("k = 'a'"), f"other/{number}")
    if others < 8:
        summary = counted(table, rows, "killed")
        assert (summary.applied, summary.replayed, summary.finished_before) == (1, 1, False)
        assert stored(service, table.name) == {"a": {"n": others + 1}, "b": {"n": 1}}
        assert listed(service, table.name)[0][4] == "2"
        return
    why = (
        rf"the run killed started at .* and did not finish, and {others} other runs .* last 8 writers.*resume=\"force\""
    )
    with pytest.raises(RunRefusedError, match=why):
        counted(table, rows, "killed")
    assert stored(service, table.name) == {"a": {"n": others + 1}}
    assert counted(table, rows, "killed", resume="force").applied == 2
    assert counted(table, rows, "killed").finished_before


CORRECTED: list[tuple[dict[str, Any], str]] = [
    ({"update": {"$inc": {"n": 2}}}, 'update: {"$inc": {"n": 2}} was {"$inc": {"n": 1}}'),
    ({"default": None}, 'default: none was {"n": 0}'),
    ({"key": "other"}, 'key: ["other"] was ["k"]'),
]


@pytest.mark.parametrize("finished", [True, False])
def test_a_corrected_write_under_the_token_of_another_is_refused(
    finished: bool, service: Service, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"runs_corrected_{finished}", service.url)
    wide = rows.withColumn("other", col("k"))
    if finished:
        counted(table, wide, "corrected")
    else:
        counted_with_kill(monkeypatch, table, wide, "corrected")
    before = stored(service, table.name)
    for change, difference in CORRECTED:
        arguments = {"key": "k", "update": {"$inc": {"n": lit(1)}}, "default": ZERO, **change}
        with pytest.raises(RunRefusedError, match=re.escape(f"with other arguments: {difference}. ")):
            table.update(wide, token="corrected", **arguments)
    with pytest.raises(RunRefusedError, match=r'operation: put was update; .*columns: \["v"\] was none'):
        table.put(rows, "k", token="corrected")
    assert stored(service, table.name) == before


def test_a_run_finishes_when_no_row_fails_or_a_handler_has_the_failed_rows(service: Service, rows: DataFrame) -> None:
    table = Table("runs_failed", service.url)
    for key in ("a", "b"):
        with Client(service.url) as client:
            client.table(table.name).put(key, {"n": 0 if key == "a" else "text"})
    with pytest.raises(TableWriteError):
        counted(table, rows, "failing")
    collected = counted(table, rows, "failing", on_error="collect")
    assert collected.failures is not None
    assert ([row["k"] for row in collected.failures.collect()], collected.finished_before) == (["b"], False)
    handled: list[int] = []
    for finished_before in (False, True):
        summary = counted(table, rows, "handled", on_error=lambda failed, _: handled.append(failed.count()))
        assert summary.finished_before is finished_before
    assert handled == [1]
    with Client(service.url) as client:
        client.table(table.name).put("b", {"n": 0})
    for applied, finished_before in ((1, False), (0, True)):
        summary = counted(table, rows, "failing", on_error="collect")
        assert (summary.applied, summary.finished_before) == (applied, finished_before)
        assert summary.failures is not None
        assert (summary.failures.count(), summary.failures.columns) == (0, collected.failures.columns)
    assert stored(service, table.name) == {"a": {"n": 2}, "b": {"n": 1}}


def test_a_numbered_call_that_is_ignored_logs_a_warning(
    service: Service, rows: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table("runs_numbered", service.url)
    assert [counted(table, rows, ("daily", day)).applied for day in (2, 1)] == [2, 0]
    assert "2 of 2 rows were ignored: applied before with this token, or with a later one of its writer" in caplog.text
    assert listed(service, table.name) == []
    with pytest.raises(ValueError, match="resume= is for a run"):
        counted(table, rows, ("daily", 3), resume="force")


def test_a_run_is_one_record_that_expires_and_the_count_of_events_does_not(service: Service, rows: DataFrame) -> None:
    table = Table("runs_record", service.url, runs_memory_s=1_000)
    changes = rows.withColumn("gone", lit(False))
    table.update(changes, "k", {"n": 1}, default=ZERO, token="record", delete_when="gone", order_by="v")
    with Client(service.url) as client:
        found = {record.key: record for record in client.table(table.name + RUNS).scan()}
    assert found.keys() == {"run/record", EVENTS_KEY}
    assert found[EVENTS_KEY].expires_at is None
    expires_at = dt.datetime.fromisoformat(found["run/record"].expires_at or "")
    assert 900 < (expires_at - dt.datetime.now(dt.UTC)).total_seconds() <= 1_000
    assert found["run/record"].value["writers"] == 2  # `delete_when` has one of its own
    with pytest.raises(ValueError, match="runs_memory_s is a number of seconds above 0"):
        replace(table, runs_memory_s=0)


@pytest.fixture
def memory(service: Service) -> Iterator[RunMemory]:
    name = f"runs_{uuid.uuid4()}"
    with Client(service.url) as client:
        yield RunMemory(client.table(name + RUNS), name, 60.0)


def once(memory: RunMemory, token: str, writers: int = 1, inside: Callable[[], object] = lambda: None) -> bool:
    """Run a job that does something while it writes. Return whether it was sent."""

    def send() -> WriteSummary:
        inside()
        return WriteSummary()

    run = Run(token, "update", writers=writers)
    return not memory.once(run, "exact", send, lambda: WriteSummary(finished_before=True)).finished_before


def kill(memory: RunMemory, token: str, writers: int = 1) -> None:
    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        once(memory, token, writers, die)


def is_refused(memory: RunMemory, token: str, writers: int = 1) -> bool:
    try:
        assert once(memory, token, writers)
    except RunRefusedError:
        return True
    return False


@pytest.mark.parametrize("while_they_write", [True, False])
@pytest.mark.parametrize("others", [7, 8])
def test_runs_that_had_not_finished_when_a_killed_run_started_count(
    others: int, while_they_write: bool, memory: RunMemory
) -> None:
    refused: list[bool] = []

    def overlapping(remaining: int) -> None:
        if remaining:
            once(memory, f"overlapping/{remaining}", inside=lambda: overlapping(remaining - 1))
            return
        kill(memory, "killed")
        if while_they_write:
            refused.append(is_refused(memory, "killed"))

    for number in range(10):
        once(memory, f"before/{number}")
    overlapping(others)
    assert (refused or [is_refused(memory, "killed")]) == [others > 7]


@pytest.mark.parametrize(
    ("own", "others", "theirs", "refused"),
    [(1, 7, 1, False), (1, 8, 1, True), (2, 6, 1, False), (2, 7, 1, True), (1, 3, 2, False), (1, 4, 2, True)],
)
def test_a_killed_run_is_refused_if_its_writers_and_those_of_the_others_exceed_eight(
    own: int, others: int, theirs: int, refused: bool, memory: RunMemory
) -> None:
    for _ in range(2):
        kill(memory, "killed", own)
    for number in range(others):
        kill(memory, f"other/{number}", theirs)
        assert once(memory, f"other/{number}", theirs)  # a run that starts again counts once
    assert is_refused(memory, "killed", own) is refused


def test_of_jobs_that_start_a_run_together_with_different_arguments_one_is_sent(memory: RunMemory) -> None:
    together = threading.Barrier(8)

    def start(number: int) -> bool:
        run = Run("same", "update", {"update": str(number)})
        together.wait()
        try:
            memory.once(run, "exact", WriteSummary, WriteSummary)
        except RunRefusedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(8))) == 1


def test_the_texts_of_equal_arguments_are_equal_and_those_of_others_are_not(spark: SparkSession) -> None:
    def arguments() -> list[Any]:
        named = F.udf(lambda value: value, "string")
        return [
            F.transform("xs", lambda x: x + 1), F.rand(), named(col("a") + F.transform("xs", lambda x: x + 2)),
            lit(b"bytes"), col("x_1"), col("x_2"), lit("a"), "a", 1, 1.5, None, True,
            {"b": [1, col("a")], "a": dt.date(2026, 11, 20)}, {"a": "x" * (TEXT_CHARACTERS_MAX + 1)},
        ]  # fmt: skip

    first, second = ([fingerprint({"update": argument}) for argument in arguments()] for _ in range(2))
    assert first == second
    assert len({str(texts) for texts in first}) == len(first)
    assert max(len(texts.get("update", "")) for texts in first) < TEXT_CHARACTERS_MAX + 100
    assert fingerprint({"update": {"b": 1, "a": 2}}) == fingerprint({"update": {"a": 2, "b": 1}})
