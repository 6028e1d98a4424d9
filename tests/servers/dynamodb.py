"""Amazon's DynamoDB Local, with data in memory. It accepts any credentials and shows the same tables to all clients."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from .install import ensure_command
from .maven import SHORT, ensure_jars, plain_java
from .process import HOST, Server, free_port, running

HERE = Path(__file__).parent
DESCRIPTION = HERE / "dynamodb.xml"
ANSWER_MAX_S = 10.0

JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC")


@contextlib.contextmanager
def dynamodb_local(directory: Path, *, compilation: Sequence[str] = SHORT) -> Iterator[str]:
    """Run DynamoDB Local and yield its endpoint. `compilation` are options of Java for a short run.

    Its main class always listens on every interface. `dynamodb.xml` therefore configures its web server (Jetty) to run
    the same server on loopback, and without the telemetry that the main class sends to Amazon.
    """
    java = ensure_command("java", "default-jre-headless")
    jars = ensure_jars("dynamodb")
    port = free_port()
    command = [
        *(str(java), *JAVA_OPTIONS, *compilation, f"-Dsqlite4java.library.path={jars}", "-cp", f"{jars}/*"),
        *("org.eclipse.jetty.xml.XmlConfiguration", f"host={HOST}", f"port={port}", str(DESCRIPTION)),
    ]
    environment = plain_java() | {"DDB_LOCAL_TELEMETRY": "0"}
    with running(Server("dynamodb", command, lambda: _answers(port), environment=environment), directory):
        yield f"http://{HOST}:{port}"


def _answers(port: int) -> bool:
    """Return whether a server lists its tables: DynamoDB Local listens long before it can do so."""
    request = (
        f"POST / HTTP/1.0\r\nHost: {HOST}:{port}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        "X-Amz-Target: DynamoDB_20120810.ListTables\r\nX-Amz-Date: 20130101T000000Z\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=any/20130101/any/dynamodb/aws4_request,"
        " SignedHeaders=host, Signature=any\r\nContent-Length: 2\r\n\r\n{}"
    )
    with socket.create_connection((HOST, port), timeout=ANSWER_MAX_S) as connection, connection.makefile("rb") as file:
        connection.sendall(request.encode())
        return b" 200 " in file.readline()
