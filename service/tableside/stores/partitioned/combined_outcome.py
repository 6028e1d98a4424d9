"""What became of a write in each of its partitions, as one outcome. Pure."""

from copy import copy

from msgspec.structs import replace

from ...core import PartitionOutcome, TableError, Written


def whole(placed: tuple[PartitionOutcome, ...]) -> Written | TableError:
    """Return a success if all are, else the first failure by index, told of how many; what was where stands beside it.

    One partition's outcome is that of the whole, as an ordinary table's would be. None is a write that was dropped.
    """
    failed = [one for one in placed if isinstance(one.outcome, TableError)]
    if failed:
        return _failed(placed, failed)
    if len(placed) == 1:
        [one] = placed
        assert isinstance(one.outcome, Written)
        return replace(one.outcome, partitions=placed)
    done = [one.outcome for one in placed if isinstance(one.outcome, Written)]
    return Written(
        None,
        created=bool(done) and all(written.created for written in done),
        replayed=bool(done) and all(written.replayed for written in done),
        partitions=placed,
    )


def _failed(placed: tuple[PartitionOutcome, ...], failed: list[PartitionOutcome]) -> TableError:
    errors = [one.outcome for one in failed if isinstance(one.outcome, TableError)]
    found = copy(errors[0])
    found.partitions = placed
    if len(placed) > 1:
        which = ", ".join(str(one.partition) for one in failed)
        found.detail = f"{len(failed)} of {len(placed)} partitions failed ({which}), the first so: {errors[0].detail}"
        found.args = (found.detail,)
        found.retriable = all(error.retriable for error in errors)
        surely_not = len(failed) == len(placed) and all(error.applied == "no" for error in errors)
        found.applied = "no" if surely_not else "unknown"
        waits_s = [error.retry_after_s for error in errors if error.retry_after_s is not None]
        found.retry_after_s = max(waits_s, default=None) if found.retriable else None
    return found
