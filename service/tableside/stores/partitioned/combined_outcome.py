"""One outcome for a write from its outcomes in several partitions. Pure."""

from copy import copy

from msgspec.structs import replace

from ...core import PartitionOutcome, TableError, Written


def combine_outcomes(placed: tuple[PartitionOutcome, ...]) -> Written | TableError:
    """Return a success if every partition succeeded, else the first failure by index with the number of failures.

    The result lists the outcome of each partition. The outcome of a single partition is otherwise unchanged, as in a
    table without partitions. A write to no partition succeeds and changes nothing.
    """
    failed = [one for one in placed if isinstance(one.outcome, TableError)]
    if failed:
        return _combine_failures(placed, failed)
    if len(placed) == 1:
        [one] = placed
        assert isinstance(one.outcome, Written)
        return replace(one.outcome, partitions=placed)
    written = [one.outcome for one in placed if isinstance(one.outcome, Written)]
    return Written(
        None,
        created=bool(written) and all(outcome.created for outcome in written),
        replayed=bool(written) and all(outcome.replayed for outcome in written),
        partitions=placed,
    )


def _combine_failures(placed: tuple[PartitionOutcome, ...], failed: list[PartitionOutcome]) -> TableError:
    errors = [one.outcome for one in failed if isinstance(one.outcome, TableError)]
    combined = copy(errors[0])
    combined.partitions = placed
    if len(placed) > 1:
        indexes = ", ".join(str(one.partition) for one in failed)
        first = errors[0].detail
        combined.detail = f"{len(failed)} of {len(placed)} partitions failed ({indexes}); the first error: {first}"
        combined.args = (combined.detail,)
        combined.retriable = all(error.retriable for error in errors)
        not_applied = len(failed) == len(placed) and all(error.applied == "no" for error in errors)
        combined.applied = "no" if not_applied else "unknown"
        waits_s = [error.retry_after_s for error in errors if error.retry_after_s is not None]
        combined.retry_after_s = max(waits_s, default=None) if combined.retriable else None
    return combined
