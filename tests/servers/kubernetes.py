"""An API server of Kubernetes with its etcd, and no more: objects are checked, admitted and kept, and nothing runs.

It is built from Kubernetes' own source by a Go toolchain, which takes minutes the first time, so no ordinary test asks
for it. Debian brings etcd. The definitions of kinds that others have come with their projects' sources.
"""

import contextlib
import hashlib
import json
import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bootstrap import ROOT, SetupError, step

from .install import ensure_command, ensure_folder, find_command
from .process import HOST, Server, free_port, running

SOURCE = ROOT / "tests" / "servers" / "apiserver"
TOKEN = "admin"

DEFINITIONS = {
    "sigs.k8s.io/gateway-api@v1.4.0": {
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml": "httproutes",
    },
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": {
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml": "servicemonitors",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml": "prometheusrules",
    },
}
DIGESTS = {
    "httproutes": "c2539410dec72b793ef840f484c19d13b48210074ec801b730e9fce2c5fc825c",
    "servicemonitors": "1dae27b7189b5ce7b9ab764656c18b4c75a45cde1e6f3af6a5e84c4317628919",
    "prometheusrules": "98fd16c9ab79fba8dcd6ef62c957c98cd6546ab74ce0a4ecf09ddf2fda03020e",
}
"""SHA-256 of each definition."""


@dataclass(frozen=True)
class Cluster:
    """A running API server, the token of an administrator, and the file of the authority that it shows."""

    url: str
    token: str
    authority: Path


@contextlib.contextmanager
def kubernetes(directory: Path) -> Iterator[Cluster]:
    """Run an API server and yield it when it is ready."""
    program = _built() / "kube-apiserver"
    directory.mkdir(parents=True, exist_ok=True)
    with _etcd(directory) as store:
        port, certificates = free_port(), directory / "certificates"
        cluster = Cluster(f"https://{HOST}:{port}", TOKEN, certificates / "apiserver.crt")
        command = [str(program), *_arguments(directory, store, port)]
        with running(Server("kube-apiserver", command, lambda: _is_ready(cluster)), directory):
            yield cluster


def definitions() -> list[Path]:
    """Return the files that define the kinds of other projects."""
    return sorted(_built().glob("*.yaml"))


def _built() -> Path:
    sources = (*sorted(SOURCE.iterdir()), Path(__file__))
    return ensure_folder("kubernetes", sources, _build)


def _build(folder: Path) -> None:
    if (go := find_command("go")) is None:
        raise SetupError("go is missing: Kubernetes is built by the version that servers/apiserver/go.mod names")
    build = ["nice", str(go), "build", "-C", str(SOURCE), "-mod=readonly", "-ldflags", _named()]
    step("building Kubernetes' API server, which takes some minutes", [*build, "-o", str(folder / "kube-apiserver")])
    for module, files in DEFINITIONS.items():
        told = subprocess.run(
            [go, "mod", "download", "-json", module], cwd=folder, check=True, capture_output=True, text=True
        )
        for file, name in files.items():
            _keep(Path(json.loads(told.stdout)["Dir"]) / file, name, folder)


def _named() -> str:
    """Return how the linker is told the version, which Helm asks for."""
    [version] = re.findall(r"k8s\.io/kubernetes (v[0-9.]+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    return f"-X k8s.io/component-base/version.gitVersion={version}"


def _keep(file: Path, name: str, folder: Path) -> None:
    if hashlib.sha256(file.read_bytes()).hexdigest() != DIGESTS[name]:
        raise SetupError(f"{file} is not the file that is known")
    shutil.copy(file, folder / f"{name}.yaml")


@contextlib.contextmanager
def _etcd(directory: Path) -> Iterator[str]:
    client, peer = (f"http://{HOST}:{free_port()}" for _ in range(2))
    command = [str(ensure_command("etcd", "etcd-server")), "--data-dir", str(directory / "etcd")]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    with running(Server("etcd", command, lambda: _answers(f"{client}/health")), directory):
        yield client


def _arguments(directory: Path, store: str, port: int) -> list[str]:
    key, tokens = directory / "accounts.key", directory / "tokens.csv"
    openssl = str(ensure_command("openssl", "openssl"))
    subprocess.run([openssl, "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens.write_text(f'{TOKEN},admin,1,"system:masters"\n')
    return [
        f"--etcd-servers={store}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--cert-dir={directory / 'certificates'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/16",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
    ]


def _is_ready(cluster: Cluster) -> bool:
    if not cluster.authority.exists():
        return False
    return _answers(f"{cluster.url}/readyz", ssl.create_default_context(cafile=cluster.authority))


def _answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=5, context=context) as answer:
        return int(answer.status) == 200
