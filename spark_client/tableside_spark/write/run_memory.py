"""What a table remembers of a run, a batch write with a token: whether it has started, and whether it has finished.

The records of a table recognize the token of a run, until 8 other writers have written them. The run's record in the
companion `TABLE@runs` lasts longer. A finished run is therefore not sent again. One that has not finished is sent
again only while the records still recognize it. Its fingerprint is what it was asked for, as texts that are equal if
the same program asks again.
"""

import datetime as dt
import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from pyspark.sql import Column

from tableside_client.errors import PreconditionFailed, RecordNotFound, TableError, TableNotFound
from tableside_client.runs import Companion, Run, next_event, scan_runs
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
        """Send a run and remember that, or skip a finished one. One with collected failures does not finish.

        Raises `RunRefusedError` if the token belongs to another write, or if the records may have forgotten the run and
        `resume` is not `"force"`. Raises `TableError` while the companion is unavailable.
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
        asked, before = ({"operation": run.operation, **run.asked} for run in (wanted, found))
        if differing := differences(asked, before):
            raise RunRefusedError(
                f"table {self.table}: the run {wanted.token} was started with other arguments: {differing}. Give "
                "another write another token. Rows that the run has applied stay applied"
            )
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


TEXT_CHARACTERS_MAX = 2_000
"""The maximum length of a text. The rest of a longer one is represented by a digest."""

_DEFAULTS = {"nulls": '"write"', "decimals": '"number"', "fold": "true"}
"""Arguments with these texts are omitted, as arguments without a value are."""

_VOLATILE = (
    ("Origin", r"Origin\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "Origin"),  # the line of the program
    (r"\[B@", r"\[B@[0-9a-f]+", "bytes"),  # the address of a binary literal
    (r"\b(?:rand\w*|uniform|uuid|shuffle)\(", r"-?\b\d{9,}L?\b", "seed"),
    (r"->|[Ll]ambda", r"\b([xyz])_\d+\b", r"\1"),  # variables of functions are numbered in each process
)
"""What differs in the expression of an equal column: if the first pattern occurs, the second is replaced."""


def fingerprint(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a write as texts, without those that have their default."""
    texts = {name: _limited(_text(argument)) for name, argument in arguments.items() if argument is not None}
    return {name: text for name, text in texts.items() if _DEFAULTS.get(name) != text}


def differences(asked: Mapping[str, str], before: Mapping[str, str]) -> str:
    """Return how two fingerprints differ, such as `update: {"$inc": {"n": 2}} was {"$inc": {"n": 1}}`, or ""."""
    names = [name for name in {**before, **asked} if asked.get(name) != before.get(name)]
    return "; ".join(f"{name}: {asked.get(name, 'none')} was {before.get(name, 'none')}" for name in names)


def _text(argument: Any) -> str:
    """Return a document as JSON with the expressions of its columns, and other objects by the names of their types."""
    match argument:
        case Column():
            text = str(argument).removeprefix("Column<'").removesuffix("'>")
            for marker, pattern, replacement in _VOLATILE:
                if re.search(marker, text):
                    text = re.sub(pattern, replacement, text)
            return text
        case Mapping():
            members = sorted((json.dumps(name, ensure_ascii=False), _text(argument[name])) for name in argument)
            return f"{{{', '.join(f'{name}: {text}' for name, text in members)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_text, argument))}]"
        case None | str() | bool() | int() | float():
            return json.dumps(argument, ensure_ascii=False)
        case dt.date() | Decimal():
            return str(argument)
    return str(getattr(argument, "__qualname__", type(argument).__qualname__))


def _limited(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return f"{text[:TEXT_CHARACTERS_MAX]}… (SHA-256 {hashlib.sha256(text.encode()).hexdigest()})"
