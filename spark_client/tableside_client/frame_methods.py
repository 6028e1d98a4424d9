"""The methods of tables for frames: pyarrow Tables, and DataFrames of pandas and Polars. They need pyarrow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tableside_client.calls import AsyncRun, Run
from tableside_client.concurrency import Plan, run_plan, run_plan_async
from tableside_client.table_calls import TableCalls, Update

if TYPE_CHECKING:
    from tableside_client.frames.kinds import KindName
    from tableside_client.frames.schemas import FrameSchema
    from tableside_client.json_reader import OnMismatch

Frame = TypeVar("Frame")


class FrameMethods:
    """The methods of a table for frames.

    A frame is a pyarrow Table, or a DataFrame of pandas or Polars. They need pyarrow, and raise `ImportError` without
    it. Requests have at most 5,000 keys, and several are in flight. `ValueError` means that an argument is not valid
    for this frame, `TypeError` that it is no frame. Nothing has been sent then.
    """

    _calls: TableCalls[Any]
    _run: Run

    def enrich(
        self,
        frame: Frame,
        on: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        schema: "FrameSchema | None" = None,
        on_mismatch: "OnMismatch" = "fail",
    ) -> Frame:
        """Look up the key of each row, and add members of the record as columns after those of the frame.

        The rows keep their number and order, and the frame's own columns, index and types stay as they are.

        Args:
            frame: A frame. A null key matches no record.
            on: The key columns.
            columns: The names of the members to add. The type of each is the one that all values fit: integers beside
                doubles become doubles.
            schema: The members to add with their types, in place of `columns`: a pyarrow Schema, a mapping such as
                `{"seats": "int32"}` with types of Arrow or their names, or a text as in Spark, such as `"seats int"`.
            on_mismatch: If a value does not fit the schema, `"fail"` raises an error with the column, the key and the
                types, and `"null"` returns null.

        Returns:
            A frame of the same kind. The added columns are null for rows without a record. In pandas, integers
            and booleans are then of the types `Int64` and `boolean`.

        Raises:
            ValueError: A column is missing, or would exist twice, or a value does not fit.
            TableNotFound: No table has this name.
        """
        found: Frame = self._run_plan("enrich", frame, on, columns, schema, on_mismatch)
        return found

    def update_frame(
        self,
        frame: Any,
        key: str | Sequence[str],
        update: Update,
        *,
        default: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> int:
        """Apply an update for each row. The rows of a key are applied in their order, as one step of the service.

        All operations carry the token of this call, so that a retry counts once.

        Args:
            frame: A frame.
            key: The key columns.
            update: A merge patch, an operator document such as `{"$inc": {"miles": col("miles")}}`, or a list of them.
                `tableside_client.col` names a column of the frame.
            default: The value to start from if there is no record. Of several rows with one key, that of the first.
            token: A text that names this call, so that it can be repeated after an error: rows that have been applied
                are not applied again, if the frame is the same. Default: a name that is used once.

        Returns:
            The number of rows that were applied.

        Raises:
            FrameWriteError: Some rows were not applied.
        """
        return int(self._run_plan("update_frame", frame, key, update, default, token))

    def scan_frame(
        self,
        schema: "FrameSchema | None" = None,
        kind: "KindName" = "arrow",
        *,
        prefix: str | None = None,
        partition: str | int | None = None,
        on_mismatch: "OnMismatch" = "fail",
    ) -> Any:
        """Read all records, or a part of them, as a frame.

        The columns of the key come first, with the names of the configuration, or `key`. Then comes `partition`, the
        index of the partition, if the table is partitioned.

        Args:
            schema: The members with their types, as in `enrich`. Default: all members, with the types that fit.
            kind: `"arrow"`, `"pandas"` or `"polars"`.
            prefix: Read only keys that begin with this text.
            partition: Read only the records whose composite key begins with this part.
            on_mismatch: As in `enrich`.

        Raises:
            ValueError: Two columns would have one name, or a value does not fit.
            ImportError: The package of `kind` is not installed.
        """
        return self._run_plan("scan_frame", schema, kind, prefix, partition, on_mismatch)

    def _run_plan(self, name: str, *arguments: Any) -> Any:
        return run_plan(_plan(name, self._calls, *arguments), self._run)


class AsyncFrameMethods:
    """The methods of a table for frames, as coroutines. They have the arguments and exceptions of `FrameMethods`."""

    _calls: TableCalls[Any]
    _run: AsyncRun

    async def enrich(
        self,
        frame: Frame,
        on: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        schema: "FrameSchema | None" = None,
        on_mismatch: "OnMismatch" = "fail",
    ) -> Frame:
        """Look up the key of each row, and add members of the record as columns, as `Table.enrich` does."""
        found: Frame = await self._run_plan("enrich", frame, on, columns, schema, on_mismatch)
        return found

    async def update_frame(
        self,
        frame: Any,
        key: str | Sequence[str],
        update: Update,
        *,
        default: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> int:
        """Apply an update for each row, as `Table.update_frame` does."""
        return int(await self._run_plan("update_frame", frame, key, update, default, token))

    async def scan_frame(
        self,
        schema: "FrameSchema | None" = None,
        kind: "KindName" = "arrow",
        *,
        prefix: str | None = None,
        partition: str | int | None = None,
        on_mismatch: "OnMismatch" = "fail",
    ) -> Any:
        """Read all records, or a part of them, as a frame, as `Table.scan_frame` does."""
        return await self._run_plan("scan_frame", schema, kind, prefix, partition, on_mismatch)

    async def _run_plan(self, name: str, *arguments: Any) -> Any:
        return await run_plan_async(_plan(name, self._calls, *arguments), self._run)


def _plan(name: str, *arguments: Any) -> Plan[Any]:
    try:
        from tableside_client.frames import reads, writes  # the other methods work without pyarrow
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise ImportError("frames need pyarrow: pip install pyarrow") from None
    plan: Plan[Any] = getattr(reads if name in ("enrich", "scan_frame") else writes, name)(*arguments)
    return plan
