"""What a table remembers of a streaming query, to recognize a micro-batch whose number returns with other rows.

Spark numbers the micro-batches of a query. It repeats the last one after a failure, with the same rows. If a checkpoint
is restored from a backup, or parts of it are deleted, earlier numbers return, with any rows. The number alone therefore
does not identify a repetition. The table's companion `TABLE@runs` has one record for each query, with the content of
its last micro-batches and an epoch, which a returning number increases.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, functions as F

from tableside_client.errors import PreconditionFailed, RecordNotFound, TableError, TableNotFound
from tableside_client.runs import RUNS
from tableside_spark.executor.task_client import Connection, shared_client
from tableside_spark.plan.frames import is_remote

TAIL_BYTES_MAX = 2**20
"""How much of the end of a file is read. The list of a file source's files grows with the age of the query."""


_HEADER_LINES = 2
"""The version, and metadata with the time at which the micro-batch was planned. One line for each source follows."""


@dataclass(frozen=True, slots=True)
class Content:
    """The identity of a micro-batch's rows: a digest of its offsets, or in a task, which lacks these, its run."""

    digest: str = ""
    offsets: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint directory, readable through a session."""

    root: str
    session: SparkSession

    def query_id(self) -> str:
        """Return the id of the checkpoint's query. It is the same after a restart."""
        [line] = self._lines("metadata") or [""]
        return str(json.loads(line)["id"])

    def content(self, number: int) -> "Content":
        """Return what a micro-batch consists of: its offsets, and the new files of file sources."""
        lines = self._lines(f"offsets/{number}")
        if lines is None:
            return Content()
        # The offsets before the micro-batch are those of the micro-batch before, which is compared as well.
        ends = lines[_HEADER_LINES:]
        described = "\n".join([*ends, *self._files(ends)])
        return Content(hashlib.sha256(described.encode()).hexdigest()[:16], "\n".join(lines))

    def _files(self, offsets: list[str]) -> Iterator[str]:
        """Yield the descriptions of the new files of file sources, whose offsets only count the batches of files."""
        for source, offset in enumerate(offsets):
            if (found := re.fullmatch(r'\{"logOffset":(\d+)\}', offset)) is not None:
                log, ending = f"sources/{source}/{found[1]}", f'"batchId":{found[1]}}}'
                yield from self._lines(log, ending) or self._lines(f"{log}.compact", ending) or ()

    def _lines(self, name: str, ending: str = "") -> list[str] | None:
        """Return the last lines of a file that end with a text, or None if there is no such file."""
        path = f"{self.root.rstrip('/')}/{name}"
        lines = self._remote_lines(path, ending) if is_remote(self.session) else self._jvm_lines(path, ending)
        return None if lines is None else [line for line in lines if line.endswith(ending)]

    def _remote_lines(self, path: str, ending: str) -> list[str] | None:
        escaped = re.sub(r"([\[\]{}*?\\])", r"\\\1", path)  # Spark interprets paths as glob patterns
        try:
            rows = self.session.read.text(escaped).where(F.endswith("value", F.lit(ending))).collect()
        except AnalysisException:
            return None
        return [row["value"] for row in rows]

    def _jvm_lines(self, path: str, ending: str) -> list[str] | None:
        jvm = self.session._jvm  # noqa: SLF001 - a Spark job takes several times as long
        assert jvm is not None
        file = jvm.org.apache.hadoop.fs.Path(path)
        files = file.getFileSystem(self.session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
        if not files.exists(file):
            return None
        stream = files.open(file)
        try:
            stream.seek(max(0, files.getFileStatus(file).getLen() - TAIL_BYTES_MAX))
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")).splitlines()
        finally:
            stream.close()


BATCHES_MAX = 100
OFFSETS_CHARACTERS_MAX = 2**16
BATCH_NUMBERS = 2**31
"""A sequence is an epoch times this, plus the number of a micro-batch."""
EPOCHS_MAX = 2**12
"""The maximum number of epochs, so that the sequences of parts and of chunks fit 63 bits."""
RUNS_MAX = 20
CONFLICTS_MAX = 20

log = logging.getLogger(__name__)


class MicroBatchChangedError(ValueError):
    """A micro-batch has the number of an earlier one, but other rows, so its updates might count twice."""


@dataclass(frozen=True, slots=True)
class QueryMemory:
    """The last micro-batches of a query: the digest of each by its number (empty if unknown), and the current epoch.

    `offsets` is the text of the checkpoint's file for the latest micro-batch. `runs` are the ids of the query's runs
    whose tasks have begun micro-batches, the latest last.
    """

    epoch: int = 0
    digests: Mapping[int, str] = field(default_factory=dict)
    offsets: str = ""
    runs: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """The number of the latest micro-batch, or -1."""
        return max(self.digests, default=-1)

    def repeats(self, number: int, digest: str) -> bool:
        """Whether a micro-batch repeats a remembered one. Without digests, Spark can only repeat the latest."""
        remembered = self.digests.get(number)
        return digest == remembered != "" or (number == self.last and "" in (digest, remembered))

    def begin(self, number: int, content: Content) -> "QueryMemory":
        """Return the memory with a micro-batch as its latest. A number that returns begins an epoch."""
        earlier = sorted(before for before in self.digests if before < number)[1 - BATCHES_MAX :]
        digests = {before: self.digests[before] for before in earlier} | {number: content.digest}
        offsets = content.offsets if len(content.offsets) <= OFFSETS_CHARACTERS_MAX else ""
        runs = self.runs if content.run in ("", *self.runs) else (*self.runs[1 - RUNS_MAX :], content.run)
        return QueryMemory(self.epoch + (number <= self.last), digests, offsets, runs)

    @classmethod
    def from_record(cls, value: Mapping[str, Any]) -> Self:
        """Read a record of the companion."""
        digests = {int(number): str(digest) for number, digest in value["batches"].items()}
        return cls(int(value["epoch"]), digests, str(value["offsets"]), tuple(value["runs"]))

    def record(self) -> dict[str, Any]:
        """Return the record of the companion."""
        digests = {str(number): digest for number, digest in self.digests.items()}
        return {"epoch": self.epoch, "batches": digests, "offsets": self.offsets, "runs": self.runs}

    def sequence(self, number: int) -> int:
        """Return the sequence of a micro-batch's token. It is higher than those of all earlier epochs."""
        return self.epoch * BATCH_NUMBERS + number


def sequence_of(
    connection: Connection, table: str, query: str, number: int, content: Content, *, harmless: bool
) -> int:
    """Remember a micro-batch in the table, and return the sequence of its token.

    Raises `MicroBatchChangedError` if the number returns with other rows that are not `harmless` to apply again, or if
    this is a late task of an earlier run of the query.
    """
    companion = shared_client(connection).table(table + RUNS)
    for _ in range(CONFLICTS_MAX):
        try:
            found = companion.record(query)
        except (RecordNotFound, TableNotFound):
            found = None
        except TableError as error:
            return _unremembered(table, number, error)
        memory = QueryMemory() if found is None else QueryMemory.from_record(found.value)
        if memory.repeats(number, content.digest):
            return memory.sequence(number)
        if content.run in memory.runs[:-1]:
            raise MicroBatchChangedError(f"table {table}: this task is late, a later run of query {query} has begun")
        if number <= memory.last:
            _check_may_return(memory, table, query, number, harmless=harmless)
        memory = memory.begin(number, content)
        try:
            etag = None if found is None else found.etag
            companion.put(query, memory.record(), if_match=etag, if_absent=found is None)
        except PreconditionFailed:
            continue
        except TableError as error:
            return _unremembered(table, number, error)
        return memory.sequence(number)
    raise MicroBatchChangedError(f"table {table}: other tasks change the memory of query {query} again and again")


def _check_may_return(memory: QueryMemory, table: str, query: str, number: int, *, harmless: bool) -> None:
    log.warning("table %s: micro-batch %d of query %s returns with other rows", table, number, query)
    if harmless and memory.epoch + 1 < EPOCHS_MAX:
        return
    advice = "restore the newest checkpoint, or start with a new one, after the rows that the table contains"
    if number == memory.last and memory.offsets:
        advice += (
            f". The record {query} of table {table}{RUNS} has the earlier offsets: "
            f"store them as the file offsets/{number} of the checkpoint to repeat the earlier micro-batch"
        )
    raise MicroBatchChangedError(
        f"table {table}: micro-batch {number} was written before with other rows, so some of its rows may already "
        f"count. The checkpoint is older than the table, or was changed: {advice}"
    )


def _unremembered(table: str, number: int, error: TableError) -> int:
    """Return the sequence in a table that remembers no queries. Raises temporary errors."""
    if error.retriable:
        raise error
    _warn_once(table, str(error))
    return number


@lru_cache(maxsize=1_000)
def _warn_once(table: str, reason: str) -> None:
    log.warning("table %s remembers no streaming queries, so older checkpoints are not recognized: %s", table, reason)
