"""Apache Kafka: one process as broker and controller, with its data in a temporary folder. Spark's connector to it."""

import base64
import contextlib
import socket
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from .install import ensure_command
from .maven import SHORT, ensure_jars, plain_java
from .process import HOST, START_MAX_S, Server, ServerFailed, free_port, running

NODE = 1
ANSWER_MAX_S = 10.0
JAVA_OPTIONS = (*SHORT, "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

METADATA, METADATA_VERSION = 3, 4
NO_CLIENT, NO_TOPICS, MAKE_NONE = -1, 0, False


@contextlib.contextmanager
def kafka(directory: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a broker and yield its address, `host:port`. `settings` override its default properties.

    Clients need no credentials. Topics must be created before use.
    """
    with tempfile.TemporaryDirectory(prefix="tableside-kafka-") as data:
        port = free_port()
        properties = Path(data) / "server.properties"
        chosen = _settings(port, free_port(), Path(data) / "log") | dict(settings or {})
        properties.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        _format(properties)
        command = [*_java(), "kafka.Kafka", str(properties)]
        with running(Server("kafka", command, lambda: _serves(port), environment=plain_java()), directory):
            yield f"{HOST}:{port}"


def spark_kafka_jars() -> list[Path]:
    """Return the jars of Spark's connector for a session's `spark.jars`. PySpark has none of them."""
    return sorted(ensure_jars("spark-kafka").glob("*.jar"))


def _settings(port: int, controller_port: int, log: Path) -> dict[str, str]:
    """Return the properties of a single-node cluster."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE),
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE}@{HOST}:{controller_port}",
        "log.dirs": str(log),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }


def _format(properties: Path) -> None:
    """Format the data folder for a new cluster."""
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [*_java(), "kafka.tools.StorageTool", "format", "--config", str(properties), f"--cluster-id={cluster}"]
    made = subprocess.run(command, env=plain_java(), capture_output=True, text=True, timeout=START_MAX_S, check=False)
    if made.returncode != 0:
        raise ServerFailed(f"kafka's storage tool ended with {made.returncode}:\n{made.stdout}{made.stderr}")


def _java() -> list[str]:
    java = ensure_command("java", "default-jre-headless")
    return [str(java), *JAVA_OPTIONS, "-cp", f"{ensure_jars('kafka')}/*"]


def _serves(port: int) -> bool:
    """Return whether the broker's metadata lists the broker itself: it listens earlier than that."""
    header = struct.pack(">hhih", METADATA, METADATA_VERSION, 0, NO_CLIENT)
    request = header + struct.pack(">i?", NO_TOPICS, MAKE_NONE)
    with socket.create_connection((HOST, port), timeout=ANSWER_MAX_S) as connection, connection.makefile("rwb") as file:
        file.write(struct.pack(">i", len(request)) + request)
        file.flush()
        answer = file.read(16)  # size, correlation id, throttle time, number of brokers
        return len(answer) == 16 and struct.unpack(">iiii", answer)[3] == 1
