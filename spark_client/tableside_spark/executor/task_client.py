"""The client as one Spark task uses it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from tableside_client.connection import Connection, shared_client
from tableside_client.request_window import RequestWindow
from tableside_spark.executor.ordered_pool import map_ordered
from tableside_spark.executor.task_waits import TaskWaits

Item = TypeVar("Item")
Result = TypeVar("Result")


class TaskClient:
    """The shared client, with an adaptive number of requests in flight. Thread-safe.

    Attributes:
        waits: The time that the task waits for retries.
    """

    def __init__(self, connection: Connection, table: str, in_flight_max: int) -> None:
        client = shared_client(connection)
        self._table = client.arrow_table(table)
        self._in_flight_max = in_flight_max
        self._window = RequestWindow(in_flight_max)
        self.waits = TaskWaits(client)

    def map(self, items: Iterable[Item], call: Callable[[Item], Result]) -> Iterator[Result]:
        """Yield `call(item)` in order, for as many items at a time as the window of requests allows."""
        return map_ordered(items, call, self._in_flight_max, lambda: self._window.size)

    def batch(self, operations: pa.Table, **options: Any) -> pa.Table:
        """Send operations as `ArrowTable.batch` does, and adapt the window."""
        return self._table.batch(operations, window=self._window, **options)
