"""The image in a container without privileges: it serves, keeps its data, and shuts down gracefully."""

import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import yaml

from deploy.image.built import Built
from servers.container import Container, Run, container, ran
from servers.process import free_port
from support.waiting import until

pytestmark = [pytest.mark.daily, pytest.mark.server, pytest.mark.xdist_group("image")]

USER = 10001
END_MAX_S = 120.0
RUN_MAX_S = 300.0
TOKEN = secrets.token_hex(16)
AUTH = {"tokens": [{"name": "t", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "read": ["*"], "write": ["*"]}]}
LOCAL = {"stores": {"local": {"kind": "rocksdb", "path": "/data/tableside"}}, "auto_create": True}


@dataclass(frozen=True)
class Volume:
    """A volume for data, which the user may write to, and a configuration file."""

    folder: Path
    user: int = USER
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        os.chown(self.data, self.user, -1)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def configured(self, configuration: Mapping[str, object]) -> Path:
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(configuration))
        return file

    def run(self, image: Built, configuration: Mapping[str, object], *options: str, user: str | None = None) -> Run:
        """Return options that run the image's own command with this volume, listening on loopback only."""
        listen = ["--host", "127.0.0.1", "--port", str(self.port)]
        mounts = {"/data": self.data, "/etc/tableside/config.yaml": self.configured(configuration)}
        return Run([*image.image.config["Cmd"], *listen, *options], mounts=mounts, user=user)


def test_it_stores_records_for_callers_with_a_token_and_logs_json(tableside_image: Built, tmp_path: Path) -> None:
    """The first container shuts down gracefully during a request. The second is killed."""
    volume = Volume(tmp_path)
    with served(tableside_image, volume, {**LOCAL, "auth": AUTH}) as (container, client):
        assert client.put("/v1/tables/t/records/a", json={"n": 1}).status_code == 204
        assert client.get("/v1/tables/t/records/a").json() == {"n": 1}
        assert httpx.get(f"{client.base_url}/v1/tables/t/records/a", trust_env=False).status_code == 401
        check_that_a_pending_request_completes_before_shutdown(volume, container, client)
        assert [json.loads(line)["event"] for line in container.output.read_text().splitlines()]
        assert container.errors.read_text() == ""
    kept = list((volume.data / "tableside").iterdir())
    assert kept
    assert {file.stat().st_uid for file in kept} == {USER}
    with served(tableside_image, volume, {**LOCAL, "auth": AUTH}) as (container, client):
        assert client.get("/v1/tables/t/records/a").json() == {"n": 1}
        assert client.get("/v1/tables/t/records/late").json() == {"n": 2}
        check_that_it_has_no_privileges_and_can_write_only_to_its_volume(container)
        assert not is_dead(container.pid)
    until(lambda: is_dead(container.pid))


def check_that_it_has_no_privileges_and_can_write_only_to_its_volume(container: Container) -> None:
    status = dict(line.split(":\t", 1) for line in proc_lines(container, "status") if ":\t" in line)
    assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
    assert status["NSpid"].split()[-1] == "1"
    assert status["NoNewPrivs"] == "1"
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    mounted = {
        target: options.split(",") for _, target, _, options, *_ in map(str.split, proc_lines(container, "mounts"))
    }
    assert "ro" in mounted["/"]
    assert "rw" in mounted["/data"]


def check_that_a_pending_request_completes_before_shutdown(
    volume: Volume, container: Container, client: httpx.Client
) -> None:
    body = b'{"n": 2}'
    with socket.create_connection(("127.0.0.1", volume.port), timeout=END_MAX_S) as connection:
        head = f"PUT /v1/tables/t/records/late HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:4])
        until(lambda: b'tableside_in_flight{what="requests"} 1' in client.get("/metrics").content)
        container.stop()
        until(lambda: "shutting down" in container.output.read_text())
        connection.sendall(body[4:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 204 ")
    assert container.ended(END_MAX_S) == 0


def test_without_auth_it_refuses_to_start_by_default(tableside_image: Built) -> None:
    refused = ran(tableside_image.image, Run(), RUN_MAX_S)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr == (
        "tableside: without auth the service listens on loopback only; use --insecure to listen on 0.0.0.0\n"
    )


def test_with_insecure_it_serves_the_default_configuration(tableside_image: Built, tmp_path: Path) -> None:
    shipped = yaml.safe_load((tableside_image.image.root / "etc/tableside/config.yaml").read_text())
    with served(tableside_image, Volume(tmp_path), shipped, "--insecure") as (_, client):
        assert client.put("/v1/tables/t/records/a", json={"n": 1}).status_code == 204
        assert client.get("/v1/tables/t").json()["store"]["kind"] == "rocksdb"


def test_any_other_user_can_run_it(tableside_image: Built, tmp_path: Path) -> None:
    volume = Volume(tmp_path, user=23456)
    with served(tableside_image, volume, {**LOCAL, "auth": AUTH}, user="23456:0") as (_, client):
        assert client.put("/v1/tables/t/records/a", json={"n": 1}).status_code == 204


def test_several_workers_need_no_more_than_tmp(tableside_image: Built, tmp_path: Path, redis_url: str) -> None:
    stores = {"cache": {"kind": "redis", "url": redis_url}}
    configuration = {"stores": stores, "auto_create": True, "auth": AUTH}
    with served(tableside_image, Volume(tmp_path), configuration, "--workers", "2") as (container, client):
        assert client.put("/v1/tables/image/records/a", json={"n": 1}).status_code == 204
        assert client.get("/v1/tables/image/records/a").json() == {"n": 1}
        container.stop()
        assert container.ended(END_MAX_S) == 0


def test_with_a_volume_that_is_not_writable_it_does_not_start(tableside_image: Built, tmp_path: Path) -> None:
    volume = Volume(tmp_path, user=0)
    volume.data.chmod(0o755)
    refused = ran(tableside_image.image, volume.run(tableside_image, {**LOCAL, "auth": AUTH}), RUN_MAX_S)
    assert refused.returncode == 3
    assert "cannot be created: Permission denied" in refused.stdout


@contextmanager
def served(
    image: Built, volume: Volume, configuration: Mapping[str, object], *options: str, user: str | None = None
) -> Iterator[tuple[Container, httpx.Client]]:
    """Run the image. When it is ready, yield the container and a client with a token."""
    run = volume.run(image, configuration, *options, user=user)
    headers, url = {"Authorization": f"Bearer {TOKEN}"}, f"http://127.0.0.1:{volume.port}"
    with (
        container(image.image, run, volume.folder / f"output-{time.monotonic_ns()}") as started,
        httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=END_MAX_S) as client,
    ):
        until(lambda: ready(client), otherwise=lambda: started.output.read_text() + started.errors.read_text())
        yield started, client


def ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def is_dead(pid: int) -> bool:
    """Return whether a process has ended. If its parent has not waited for it, it is still listed as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def proc_lines(container: Container, name: str) -> list[str]:
    """Return the lines of a file in /proc about the first process."""
    return Path(f"/proc/{container.pid}/{name}").read_text().splitlines()
