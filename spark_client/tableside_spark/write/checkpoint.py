"""Reads what Spark stores in the checkpoint of a streaming query about the query and its micro-batches."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.plan.frames import is_remote

TAIL_BYTES_MAX = 2**20
"""How much of the end of a file is read. The list of a file source's files grows with the age of the query."""


_HEADER_LINES = 2
"""The version, and metadata with the time at which the micro-batch was planned. One line for each source follows."""


@dataclass(frozen=True, slots=True)
class Content:
    """The identity of a micro-batch's rows: a digest, which is empty if Spark has not stored the offsets.

    `offsets` is the text of the checkpoint's file. A task cannot read it: its digest is the id of the query's `run`.
    """

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
