"""The modules that a request passes through: `python -m bench.request_path`.

For each kind of request, it prints the number of the service's modules whose functions run, and the number of calls
from one of these modules to another. For `Table.update` it does so with the client's modules, in the Spark driver.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pyarrow as pa
from examples.demo.service import free_port, running as running_service
from examples.demo.session import session
from pyspark.sql.functions import col, lit
from uvicorn import Config

from tableside.app import create_app
from tableside.server.connection import HttpConnection
from tableside.server.exchange import SharedState
from tableside.settings import validate
from tableside_spark import Table

BATCH_ROWS = 100
ANSWER_MAX_S = 5.0


@dataclass
class RequestPath:
    """The modules whose functions ran, and the number of calls from one module to another."""

    packages: tuple[str, ...]
    modules: set[str] = field(default_factory=set)
    crossings: int = 0

    def call(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note a call. This is a profile function of `sys.setprofile`."""
        callee = frame.f_globals.get("__name__", "")
        if event != "call" or not callee.startswith(self.packages):
            return
        self.modules.add(callee)
        caller = frame.f_back
        while caller is not None and not caller.f_globals.get("__name__", "").startswith(self.packages):
            caller = caller.f_back
        if caller is not None and caller.f_globals["__name__"] != callee:
            self.crossings += 1


@contextmanager
def recorded(*packages: str) -> Iterator[RequestPath]:
    """Record the path of the code that runs in this thread."""
    path = RequestPath(packages)
    sys.setprofile(path.call)
    try:
        yield path
    finally:
        sys.setprofile(None)


def requests() -> dict[str, bytes]:
    """Return one HTTP request of each kind."""
    record = "/v1/tables/t/records/a"
    patch = json.dumps({"update": {"$inc": {"n": 1}}, "default": {"n": 0}}).encode()
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"key": [str(number) for number in range(BATCH_ROWS)]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    arrow = sink.getvalue().to_pybytes()
    return {
        "PUT": _request("PUT", record, b'{"n": 1}', "application/json"),
        "GET": _request("GET", record),
        "PATCH with a default": _request("PATCH", record, patch, "application/json"),
        f"Arrow batch of {BATCH_ROWS} gets": _request(
            "POST", "/v1/tables/t/batch?op=get", arrow, "application/vnd.apache.arrow.stream"
        ),
    }


def _request(method: str, path: str, body: bytes = b"", media_type: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
    if body:
        head += f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


class _Transport:
    """Collects the bytes that the server writes."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_arguments, **_named: None


async def paths() -> dict[str, RequestPath]:
    """Send each request twice to a service with a memory table, and record the second time."""
    app = create_app(validate({"stores": {"m": {"kind": "memory"}}, "tables": {"t": {"store": "m"}}}))
    found: dict[str, RequestPath] = {}
    async with app.router.lifespan_context(app):
        config = Config(
            app, log_config=None, access_log=False, lifespan="off", reset_contextvars=False, proxy_headers=False
        )
        config.load()
        for name, request in requests().items():
            connection, transport = HttpConnection(config, SharedState(), {}), _Transport()
            connection.connection_made(cast("asyncio.Transport", transport))
            await _answered(connection, transport, request)
            with recorded("tableside.") as found[name]:
                answer = await _answered(connection, transport, request)
            assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 204")), answer[:300]
    return found


async def _answered(connection: HttpConnection, transport: _Transport, request: bytes) -> bytes:
    transport.written = b""
    connection.data_received(request)
    async with asyncio.timeout(ANSWER_MAX_S):
        while not transport.written:  # noqa: ASYNC110  # a transport has no event to wait for
            await asyncio.sleep(0)
    return transport.written


def update_path() -> RequestPath:
    """Run `Table.update` on a small frame twice, and record the second time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_service(folder, free_port()) as service, session(folder) as spark:
            frame = spark.range(100).select((col("id") % 10).cast("string").alias("k"), col("id").alias("n"))
            table = Table("path", service.url)
            for _ in range(2):
                with recorded("tableside_spark.", "tableside_client.") as path:
                    table.update(frame, "k", {"$inc": {"n": col("n"), "count": lit(1)}}, default={"n": 0, "count": 0})
    return path


def main() -> None:
    """Print a line for each kind of request."""
    for name, path in {**asyncio.run(paths()), "Table.update": update_path()}.items():
        print(f"{name:28} {len(path.modules):3} modules {path.crossings:4} crossings")
        if "-v" in sys.argv:
            print("   ", *sorted(path.modules))


if __name__ == "__main__":
    main()
