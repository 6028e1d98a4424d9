"""Run a pod of the chart as a local process, with its command, files and ports, and send the kubelet's probes."""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.chart.rendering import Object, Values, configuration, container, merged, pod, render
from servers.process import Server, free_port, running as running_server

TOKEN = "tst-0123456789"
TOKENS = f"- {{name: test, sha256: {hashlib.sha256(TOKEN.encode()).hexdigest()}, read: ['*'], write: ['*']}}\n"


@dataclass(frozen=True)
class Pod:
    """A pod as a local process: the rendered objects, its root folder, and the URLs of its two ports."""

    objects: list[Object]
    root: Path
    http: str
    probes: str


@contextmanager
def started(values: Values, root: Path) -> Iterator[Pod]:
    """Run the command of the pod's container on loopback, with folders instead of volumes."""
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
    """Replace the paths of volumes in a text by the local folders."""
    for path in ("/etc/tableside", "/data/", "/backups"):
        text = text.replace(path, f"{root}{path}")
    return text


def probe(there: Pod, kind: str) -> int:
    """Send a probe like the kubelet, and return the status."""
    path = container(there.objects)[f"{kind}Probe"]["httpGet"]["path"]
    try:
        return httpx.get(there.probes + path, timeout=30).status_code
    except httpx.TransportError as error:
        raise ConnectionError from error
