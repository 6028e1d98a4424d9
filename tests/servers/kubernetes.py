"""A Kubernetes API server with etcd. It validates, admits and stores objects. It has no controllers and no kubelet.

A Go toolchain builds it from Kubernetes' source, which takes minutes the first time: only runs with `--full` use it.
etcd is Debian's. The custom resource definitions come from the sources of their projects.
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

GATEWAY = "sigs.k8s.io/gateway-api@v1.4.0", "config/crd/standard/gateway.networking.k8s.io_"
PROMETHEUS = (
    "github.com/prometheus-operator/prometheus-operator@v0.85.0",
    ("example/prometheus-operator-crd/monitoring.coreos.com_"),
)
DEFINITIONS = {
    "httproutes": (*GATEWAY, "c2539410dec72b793ef840f484c19d13b48210074ec801b730e9fce2c5fc825c"),
    "servicemonitors": (*PROMETHEUS, "1dae27b7189b5ce7b9ab764656c18b4c75a45cde1e6f3af6a5e84c4317628919"),
    "prometheusrules": (*PROMETHEUS, "98fd16c9ab79fba8dcd6ef62c957c98cd6546ab74ce0a4ecf09ddf2fda03020e"),
}
"""Module, start of the path and SHA-256 of each custom resource definition."""


@dataclass(frozen=True)
class Cluster:
    """A running API server: its URL, the token of an administrator, and the file of the CA certificate."""

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
    """Return the files of the custom resource definitions."""
    return sorted(_built().glob("*.yaml"))


def _built() -> Path:
    sources = (*sorted(SOURCE.iterdir()), Path(__file__))
    return ensure_folder("kubernetes", sources, _build)


def _build(folder: Path) -> None:
    go = find_command("go")
    if go is None:
        raise SetupError("go is missing: install the version that tests/servers/apiserver/go.mod names")
    # Helm reads the server's version.
    [version] = re.findall(r"k8s\.io/kubernetes (v[0-9.]+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    flags = ["-mod=readonly", "-ldflags", f"-X k8s.io/component-base/version.gitVersion={version}"]
    output = ["-o", str(folder / "kube-apiserver")]
    step("building Kubernetes' API server (minutes)", ["nice", str(go), "build", "-C", str(SOURCE), *flags, *output])
    for name, (module, path, digest) in DEFINITIONS.items():
        command = [str(go), "mod", "download", "-json", module]
        downloaded = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
        file = Path(json.loads(downloaded)["Dir"]) / f"{path}{name}.yaml"
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise SetupError(f"{file} has an unexpected digest")
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
    with urllib.request.urlopen(request, timeout=5, context=context) as response:
        return int(response.status) == 200
