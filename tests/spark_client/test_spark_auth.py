"""Spark and a service with authentication: the token reaches executors, but no plan, error or log."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_client.sessions import jvm
from support.running import Service, running
from tableside_spark import Table, TableWriteError

pytestmark = jvm("spark")

SECRETS = {name: f"tableside_{name}-s3cr3t" for name in ("all", "writer", "reader", "none")}


def digest(name: str) -> str:
    return sha256(SECRETS[name].encode()).hexdigest()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory: Path = tmp_path_factory.mktemp("guarded")
    config = directory / "tableside.yaml"
    config.write_text(
        "stores: {local: {kind: memory}}\ntables: {t: {store: local}, key: {store: local, key: {id: integer}}}\n"
        "auth:\n  tokens:\n"
        f"  - {{name: all, sha256: {digest('all')}, read: ['*'], write: ['*']}}\n"
        f"  - {{name: writer, sha256: {digest('writer')}, write: ['*']}}\n"
        f"  - {{name: reader, sha256: {digest('reader')}, read: ['*']}}\n"
        f"  - {{name: none, sha256: {digest('none')}}}\n"
    )
    with running(directory, config) as started:
        yield started


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(20).selectExpr("cast(id as string) k", "id n")


def test_a_token_reaches_executors_and_no_plan(
    spark: SparkSession, guarded: Service, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRETS['all']}\n")
    for number, options in enumerate(({"token": SECRETS["all"]}, {"token_file": str(file)})):
        table = Table("t", guarded.url, **options)  # type: ignore[arg-type]  # both are texts
        assert table.put(numbers(spark), "k").applied == 20
        assert table.update(numbers(spark), "k", {"$inc": {"n": number}}).applied == 20
        joined = table.join(numbers(spark).select("k"), "k", "n long")
        assert joined.count() == 20
        joined.explain(extended=True)
        plan = joined._jdf.queryExecution().toString()
        assert "mapInArrow" in plan or "MapInArrow" in plan
        assert SECRETS["all"] not in plan
    options = {"url": guarded.url, "table": "t", "token_file": str(file)}
    numbers(spark).write.format("tableside").options(**options, key="k").mode("append").save()
    assert spark.read.format("tableside").options(**options).load().count() == 20
    shown = capfd.readouterr()
    assert "MapInArrow" in shown.out
    assert SECRETS["all"] not in shown.out + shown.err


def test_a_caller_with_write_permission_cannot_read(spark: SparkSession, guarded: Service) -> None:
    frame = spark.range(5).selectExpr("id", "id * 2 n")
    table = Table("key", guarded.url, token=SECRETS["writer"])
    assert table.put(frame, "id").applied == 5
    assert table.update(frame, "id", {"$inc": {"n": 1}}).applied == 5
    assert table.delete(frame, "id").applied == 5
    with pytest.raises(Exception, match="forbidden") as refusal:
        table.join(frame.select("id"), "id", "n long").collect()
    assert SECRETS["writer"] not in str(refusal.value)


def test_rows_of_a_caller_without_permission_are_not_dead_letters(spark: SparkSession, guarded: Service) -> None:
    handed: list[object] = []
    table = Table("t", guarded.url, token=SECRETS["reader"])
    with pytest.raises(TableWriteError, match="20 rows failed with forbidden"):
        table.put(numbers(spark), "k", on_error=lambda failed, _: handed.append(failed))
    assert handed == []
