"""A pod of the chart as a process here: its command, its files, its ports, and what the kubelet would ask it."""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.chart.rendering import Object, Values, configuration, container, merged, pod, render
from servers.process import Server, free_port
from servers.process import running as running_server

TOKEN = "tst-0123456789"
TOKENS = f"- {{name: test, sha256: {hashlib.sha256(TOKEN.encode()).hexdigest()}, read: ['*'], write: ['*']}}\n"


@dataclass(frozen=True)
class Pod:
    """A pod that runs here: what the chart made, where its ports are, and the folder that is its root."""

    objects: list[Object]
    root: Path
    http: str
    probes: str


@contextmanager
def started(values: Values, root: Path) -> Iterator[Pod]:
    """Run what the pod's container would run, with its volumes as folders, on loopback."""
    http, probes, scheme = free_port(), free_port(), "https" if "tls" in values else "http"
    objects = render(merged(values, {"ports": {"http": http, "probes": probes}}))
    mine = container(objects)
    for mount in mine["volumeMounts"]:
        placed(mount["mountPath"], root).mkdir(parents=True, exist_ok=True)
    placed("/etc/tableside/config.yaml", root).write_text(moved(configuration(objects), root))
    if (tokens := placed("/etc/tableside-secrets/tokens", root)).is_dir():
        (tokens / "tokens.yaml").write_text(TOKENS)
    command = [sys.executable, "-m", "tableside", *(moved(argument, root) for argument in mine["args"])]
    command = [argument.replace("--host=0.0.0.0", "--host=127.0.0.1") for argument in command]
    there = Pod(objects, root, f"{scheme}://127.0.0.1:{http}", f"http://127.0.0.1:{probes}")
    with running_server(Server("pod", command, lambda: probe(there, "startup") == 200), root) as process:
        yield there
        process.terminate()
        assert process.wait(pod(objects)["spec"]["terminationGracePeriodSeconds"]) == 0


def placed(path: str, root: Path) -> Path:
    return root / path.removeprefix("/")


def moved(text: str, root: Path) -> str:
    """Return a text with the paths of volumes in it as they are here."""
    for path in ("/etc/tableside", "/data/"):
        text = text.replace(path, f"{root}{path}")
    return text


def probe(there: Pod, kind: str) -> int:
    """Ask as the kubelet would, and return the status."""
    path = container(there.objects)[f"{kind}Probe"]["httpGet"]["path"]
    try:
        return httpx.get(there.probes + path, timeout=30).status_code
    except httpx.TransportError as error:
        raise ConnectionError from error
