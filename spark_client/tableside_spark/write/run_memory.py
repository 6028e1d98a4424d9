"""What a table remembers of a run, a batch write with a token: whether it has started, and whether it has finished.

The records of a table recognize the token of a run, until 8 other writers have written them. The run's record in the
companion `TABLE@runs` lasts longer. A finished run is therefore not sent again. One that has not finished is sent
again only while the records still recognize it.
"""

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tableside_client.errors import PreconditionFailed, RecordNotFound, TableError, TableNotFound
from tableside_client.runs import Companion, Run, next_event, scan_runs
from tableside_spark.write.fingerprint import differences
from tableside_spark.write.summary import RunRefusedError, WriteSummary

Resume: TypeAlias = Literal["exact", "force"]

WRITERS_MAX = 8
"""How many writers a record remembers."""
RUNS_LAST_MAX = dt.timedelta(days=7)
"""A run that has not finished by then writes no longer: its job was killed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunMemory:
    """The runs of a table in its companion, each of which is remembered for `memory_s` after its last change."""

    companion: Companion
    table: str
    memory_s: float

    def once(
        self, wanted: Run, resume: Resume, send: Callable[[], WriteSummary], skip: Callable[[], WriteSummary]
    ) -> WriteSummary:
        """Send a run and remember that, or skip a finished one. Return the summary.

        A run with failed rows that the caller has collected does not finish, as one that raises an error.

        Raises:
            RunRefusedError: The token belongs to another write, or the records may have forgotten the run and `resume`
                is not `"force"`.
            TableError: The companion is temporarily unavailable.
        """
        try:
            run = self._start(wanted, resume)
        except TableError as error:
            if error.retriable:
                raise
            log.warning("table %s remembers no runs, so %s may be sent again: %s", self.table, wanted.token, error)
            return send()
        if run.finished is not None:
            log.warning("table %s: the run %s finished at %s: not sent again", self.table, run.token, run.finished)
            return skip()
        summary = send()
        if summary.failures is None or not summary.failed:
            self._change(run, finished=_now(), rows=summary.applied + summary.replayed)
        return summary

    def _start(self, wanted: Run, resume: Resume) -> Run:
        found = self._find(wanted)
        if found is None:
            event = next_event(self.companion)
            run = replace(wanted, started=_now(), first_event=event, last_event=event)
            try:
                self.companion.put(run.key, run.record(), if_absent=True, ttl_s=self.memory_s)
            except PreconditionFailed:  # another job has started the run
                return self._start(wanted, resume)
            return run
        self._require_same(wanted, found)
        if found.finished is None:
            if resume != "force":
                self._require_remembered(found)
            self._change(found, resumed=_now())
        return found

    def _find(self, wanted: Run) -> Run | None:
        try:
            return Run.from_record(wanted.key, self.companion.record(wanted.key).value)
        except (RecordNotFound, TableNotFound):
            return None

    def _change(self, run: Run, **members: str | int) -> None:
        changes = {"$set": members, "$max": {"last_event": next_event(self.companion)}}
        self.companion.update(run.key, changes, default=run.record(), ttl_s=self.memory_s)

    def _require_same(self, wanted: Run, found: Run) -> None:
        asked, before = ({"operation": run.operation, **run.asked} for run in (wanted, found))
        if differing := differences(asked, before):
            raise RunRefusedError(
                f"table {self.table}: the run {wanted.token} was started with other arguments: {differing}. Give "
                "another write another token. Rows that the run has applied stay applied"
            )

    def _require_remembered(self, run: Run) -> None:
        others = [other for other in scan_runs(self.companion) if other.token != run.token]
        since = [other for other in others if _may_have_written_since(other, run)]
        if run.writers + sum(other.writers for other in since) > WRITERS_MAX:
            raise RunRefusedError(
                f"table {self.table}: the run {run.token} started at {run.started} and did not finish, and "
                f"{len(since)} other runs have started or written since. A record remembers its last {WRITERS_MAX} "
                'writers, so rows of the run that were applied may be applied again. resume="force" sends it '
                "nevertheless"
            )


def _may_have_written_since(other: Run, run: Run) -> bool:
    """Whether another run may have written a record after the first write of a run."""
    if other.last_event > run.first_event:
        return True
    return other.finished is None and _time(run.started) - _time(other.resumed or other.started) < RUNS_LAST_MAX


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)
