"""A job continues while the token in its file, and that of the service, changes."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from spark_client.sessions import jvm, session
from support.running import Service, running
from support.waiting import until
from tableside_client import Client
from tableside_client.errors import TableError
from tableside_spark import Table

pytestmark = jvm("spark")

OLD, NEW = "tableside_old-s3cr3t", "tableside_new-s3cr3t"


def test_a_token_changed_during_a_job_is_reread(tmp_path: Path) -> None:
    """After one task has written with the old token, it is revoked. Another task in the same worker continues."""
    config, accepted, file = tmp_path / "tableside.yaml", tmp_path / "accepted.yaml", tmp_path / "token"
    config.write_text(
        f"stores: {{s: {{kind: memory}}}}\ntables: {{t: {{store: s}}}}\nauth: {{tokens_file: {accepted}}}\n"
    )
    accept(accepted, OLD)
    file.write_text(OLD)
    with running(tmp_path, config) as service, session("local[1]") as spark, ThreadPoolExecutor(1) as driver:
        frame = spark.range(20, numPartitions=2).selectExpr("cast(id as string) k", "id n")
        frame = frame.mapInArrow(halting(tmp_path), "k string, n long")
        put = driver.submit(Table("t", service.url, token_file=str(file)).put, frame, "k")
        until((tmp_path / "halfway").exists)
        with Client(service.url, token=OLD) as client:
            assert sum(len(page) for page in client.arrow_table("t").scan()) == 10
        accept(accepted, NEW)
        until(lambda: refuses(service, OLD))
        file.write_text(NEW)
        (tmp_path / "changed").touch()
        assert put.result(60).applied == 20
        assert not refuses(service, NEW)


def halting(folder: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that signals when the second half is reached, and waits for permission to continue."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch["n"][0].as_py() >= 10:
                (folder / "halfway").touch()
                while not (folder / "changed").exists():
                    time.sleep(0.05)
            yield batch

    return step


def accept(file: Path, token: str) -> None:
    digest = sha256(token.encode()).hexdigest()
    file.write_text(f"- {{name: job, sha256: {digest}, read: ['*'], write: ['*']}}\n")


def refuses(service: Service, token: str) -> bool:
    with Client(service.url, token=token) as client:
        try:
            client.table("t").describe()
        except TableError as error:
            return error.code == "unauthenticated"
    return False
