"""Members of a schema that no record has, such as a mistyped name: a warning, because each of their values is null."""

import logging
from collections.abc import Sequence

import pyarrow as pa

ROWS_MIN = 500
"""A task with fewer rows logs nothing: its records can lack a member by chance."""

log = logging.getLogger(__name__)


class NullMembers:
    """Finds the members that are null in all rows of a task."""

    def __init__(self, table: str, names: Sequence[str]) -> None:
        self._table = table
        self._names = dict(enumerate(names))
        self._rows = 0

    def see(self, members: Sequence[pa.Array], rows: int) -> None:
        """Note the members of some rows. `rows` counts those that have a record."""
        self._rows += rows
        self._names = {at: name for at, name in self._names.items() if members[at].null_count == len(members[at])}

    def log(self) -> None:
        """Log a warning at the end of the task, with the names of the members."""
        if self._names and self._rows >= ROWS_MIN:
            log.warning(
                "table %s: none of %d rows with a record has a value for %s: compare the schema with a record",
                self._table,
                self._rows,
                ", ".join(self._names.values()),
            )
