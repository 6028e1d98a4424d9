"""Helm installs the chart into a real API server, which validates, defaults and stores objects, but runs no containers.

Building the server takes minutes, so these tests run only with `--full`, and only if Go is installed.
"""

import json
import ssl
from collections.abc import Iterator

import helm_python
import httpx
import pytest
import yaml

from deploy.chart import matrix
from deploy.chart.rendering import CHART, LOCAL, REMOTE, Object, Values, merged, render
from servers.install import find_command
from servers.kubernetes import Cluster, definitions, kubernetes

pytestmark = [
    pytest.mark.full,
    pytest.mark.server,
    pytest.mark.skipif(find_command("go") is None, reason="Kubernetes' API server is built by Go, which is missing"),
]

NAMESPACE = "tables"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
STRICTLY = {"fieldManager": "test", "dryRun": "All", "fieldValidation": "Strict"}


def url(one: Object) -> str:
    """Return the path of an object."""
    version, kind = one["apiVersion"], one["kind"].lower()
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{root}/namespaces/{NAMESPACE}/{plural}/{one['metadata']['name']}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as started:
        yield started


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[httpx.Client]:
    """A client of the server, which has the namespace and the custom resource definitions."""
    headers = {"Authorization": f"Bearer {cluster.token}"}
    context = ssl.create_default_context(cafile=cluster.authority)
    with httpx.Client(base_url=cluster.url, headers=headers, verify=context, timeout=30) as client:
        for file in definitions():
            definition = yaml.safe_load(file.read_text())
            made = client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=definition)
            assert made.status_code == 201, made.text
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        assert client.post("/api/v1/namespaces", json=space).status_code == 201
        yield client


@pytest.fixture
def helm(cluster: Cluster) -> Iterator[helm_python.Config]:
    with helm_python.Config(
        kube_apiserver=cluster.url, kube_token=cluster.token, kube_ca_file=cluster.authority, namespace=NAMESPACE
    ) as config:
        yield config


@pytest.mark.parametrize("number", range(matrix.FULL_ROWS))
def test_the_server_accepts_every_object(api: httpx.Client, number: int) -> None:
    row = matrix.rows(matrix.FULL_ROWS)[number]
    for one in render(matrix.values_of(row), namespace=NAMESPACE):
        if one["kind"] != "Pod":  # it refers to a service account
            answer = api.patch(url(one), content=json.dumps(one), headers=APPLY, params=STRICTLY)
            assert answer.status_code == 201, f"{row}\n{answer.text}"


EVERYTHING: Values = merged(
    matrix.CHOICES["auth"]["tokens"],
    matrix.CHOICES["network"]["narrow"],
    matrix.CHOICES["prometheus"]["on"],
    matrix.CHOICES["dashboard"]["on"],
    matrix.CHOICES["ingress"]["more"],
    matrix.CHOICES["route"]["more"],
    matrix.TLS,
)
LABELS: Values = {"commonLabels": {"team": "a"}, "podLabels": {"tier": "b"}, "image": {"tag": "9.9"}}

CHANGES: dict[str, tuple[Values, Values]] = {
    "deployment": (REMOTE, merged(REMOTE, EVERYTHING, LABELS)),
    "scaled": (REMOTE, merged(REMOTE, {"autoscaling": {"enabled": True}})),
    "ports": (REMOTE, merged(REMOTE, {"ports": {"http": 9000, "probes": 9001}, "service": {"port": 80}})),
    "stateful-set": (LOCAL, merged(LOCAL, EVERYTHING, LABELS)),
    "replaced": (REMOTE, LOCAL),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(
    api: httpx.Client, helm: helm_python.Config, name: str
) -> None:
    # The check before an upgrade would wait for a pod to run.
    before, after = (merged(values, {"checkBeforeUpgrade": False}) for values in CHANGES[name])
    assert helm.install(CHART, name, before)["status"] == "deployed"
    first = lasting(render(before, release=name, namespace=NAMESPACE))
    assert {api.get(url(one)).status_code for one in first} == {200}

    assert helm.upgrade(CHART, name, after)["revision"] == 2
    second = lasting(render(after, release=name, namespace=NAMESPACE))
    assert {api.get(url(one)).status_code for one in second} == {200}
    helm.rollback(name, version=1)
    helm.uninstall(name)
    assert {api.get(url(one)).status_code for one in [*first, *second]} == {404}


def lasting(objects: list[Object]) -> list[Object]:
    """Return the objects that are not hooks."""
    return [one for one in objects if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
