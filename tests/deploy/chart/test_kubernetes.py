"""Helm installs the chart into a real API server, in a namespace that enforces the restricted profile.

The server validates, defaults, admits and stores objects, but runs no containers. Building the server takes minutes, so
these tests run only with `--full`, and only if Go is installed.
"""

import copy
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import helm_python
import httpx
import pytest
import yaml

from deploy.chart import matrix
from deploy.chart.pods import TOKENS, moved, placed, started
from deploy.chart.rendering import CHART, LOCAL, REMOTE, Object, Values, all_of, merged, pod, render
from servers.install import find_command
from servers.kubernetes import Cluster, definitions, kubernetes

pytestmark = [
    pytest.mark.full,
    pytest.mark.server,
    pytest.mark.skipif(find_command("go") is None, reason="Kubernetes' API server is built by Go, which is missing"),
]

NAMESPACE = "tables"
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
APPLY = "application/apply-patch+yaml"

PLURALS = {
    "ConfigMap": "configmaps",
    "CronJob": "cronjobs",
    "Deployment": "deployments",
    "HTTPRoute": "httproutes",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Ingress": "ingresses",
    "Job": "jobs",
    "NetworkPolicy": "networkpolicies",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PrometheusRule": "prometheusrules",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "ServiceMonitor": "servicemonitors",
    "StatefulSet": "statefulsets",
}

numbers = count()


class Api:
    """The requests to the API server that these tests need."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def path(self, kind: str, version: str, name: str = "") -> str:
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        return f"{root}/namespaces/{NAMESPACE}/{PLURALS[kind]}" + (f"/{name}" if name else "")

    def create(self, path: str, one: Object, **options: str) -> httpx.Response:
        return self._client.post(path, json=one, params=options)

    def apply(self, one: Object) -> httpx.Response:
        """Dry-run a server-side apply that rejects unknown fields."""
        path = self.path(one["kind"], one["apiVersion"], one["metadata"]["name"])
        options = {"fieldManager": "test", "dryRun": "All", "fieldValidation": "Strict"}
        return self._client.patch(path, content=json.dumps(one), headers={"Content-Type": APPLY}, params=options)

    def get(self, one: Object) -> httpx.Response:
        return self._client.get(self.path(one["kind"], one["apiVersion"], one["metadata"]["name"]))

    def finish(self, path: str, status: Object) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self._client.patch(f"{path}/status", content=json.dumps({"status": status}), headers=headers)
        assert answer.status_code == 200, answer.text

    def raw(self, path: str) -> Any:
        return self._client.get(path).raise_for_status().json()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as started:
        yield started


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    """The server with the namespace, the custom resource definitions, and the objects that controllers would create."""
    headers = {"Authorization": f"Bearer {cluster.token}"}
    context = ssl.create_default_context(cafile=cluster.authority)
    with httpx.Client(base_url=cluster.url, headers=headers, verify=context, timeout=30) as client:
        api = Api(client)
        for file in definitions():
            made = api.create(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file.read_text())
            )
            assert made.status_code == 201, made.text
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": RESTRICTED}}
        assert api.create("/api/v1/namespaces", space).status_code == 201
        for name in ("default", "mine"):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
            assert api.create(api.path("ServiceAccount", "v1"), account).status_code == 201
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
        assert api.create("/apis/scheduling.k8s.io/v1/priorityclasses", high).status_code == 201
        yield api


@pytest.fixture
def helm(cluster: Cluster) -> Iterator[helm_python.Config]:
    with helm_python.Config(
        kube_apiserver=cluster.url, kube_token=cluster.token, kube_ca_file=cluster.authority, namespace=NAMESPACE
    ) as config:
        yield config


@pytest.fixture
def jobs(api: Api, tmp_path: Path) -> Iterator[None]:
    """Run the commands of new Jobs as local processes, and store their results, as Kubernetes does with pods."""
    tokens = placed("/etc/tableside-secrets/tokens/tokens.yaml", tmp_path)
    tokens.parent.mkdir(parents=True)
    tokens.write_text(TOKENS)
    stopping = Event()

    def run() -> None:
        while not stopping.wait(0.2):
            for job in api.raw(api.path("Job", "batch/v1"))["items"]:
                if not job["status"].get("conditions"):
                    api.finish(api.path("Job", "batch/v1", job["metadata"]["name"]), ended(api, job, tmp_path))

    thread = Thread(target=run)
    thread.start()
    yield
    stopping.set()
    thread.join()


def ended(api: Api, job: Object, root: Path) -> Object:
    """Return the status of a Job after its command."""
    [mine] = job["spec"]["template"]["spec"]["containers"]
    [mounted] = [one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == "config"]
    found = api.raw(api.path("ConfigMap", "v1", mounted["configMap"]["name"]))
    file = root / "config.yaml"
    file.write_text(moved(found["data"]["config.yaml"], root))
    arguments = [one.replace("/etc/tableside/config.yaml", str(file)) for one in mine["args"]]
    done = subprocess.run([sys.executable, "-m", "tableside", *arguments], capture_output=True, timeout=300)
    at = job["metadata"]["creationTimestamp"]
    kinds = ["FailureTarget", "Failed"] if done.returncode else ["SuccessCriteriaMet", "Complete"]
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds]
    return {"startTime": at, "conditions": conditions, **({} if done.returncode else {"completionTime": at})}


def release() -> str:
    return f"r{next(numbers)}"


def as_pod(template: Object, name: str) -> Object:
    """Return the pod that a controller would create from a template."""
    one = copy.deepcopy(template)
    claims = {mount["name"] for container in one["spec"]["containers"] for mount in container.get("volumeMounts", [])}
    there = {volume["name"] for volume in one["spec"].get("volumes", [])}
    for claim in sorted(claims - there):
        volume = {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}}
        one["spec"]["volumes"].append(volume)
    return {"apiVersion": "v1", "kind": "Pod", **one, "metadata": {**one["metadata"], "name": name}}


@pytest.mark.parametrize("number", range(matrix.FULL_ROWS))
def test_the_server_accepts_every_object(api: Api, number: int) -> None:
    row = matrix.full_rows()[number]
    for one in render(matrix.values_of(row), namespace=NAMESPACE):
        if one["kind"] != "Pod":
            answer = api.apply(one)
            assert answer.status_code == 201, f"{row}\n{answer.text}"


@pytest.mark.parametrize("number", range(0, matrix.FULL_ROWS, 4))
def test_the_restricted_profile_admits_every_pod(api: Api, number: int) -> None:
    values = merged(matrix.values_of(matrix.full_rows()[number]), {"serviceAccount": {"create": False, "name": "mine"}})
    objects = render(values, namespace=NAMESPACE)
    for one in (as_pod(pod(objects), "tried"), *all_of(objects, "Pod")):
        answer = api.create(api.path("Pod", "v1"), one, dryRun="All", fieldValidation="Strict")
        assert answer.status_code == 201, answer.text
        assert "warning" not in answer.headers


def test_the_restricted_profile_rejects_a_pod_that_violates_it(api: Api) -> None:
    one = as_pod(pod(render(merged(REMOTE, {"serviceAccount": {"create": False, "name": "mine"}}))), "tried")
    one["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"] = []
    answer = api.create(api.path("Pod", "v1"), one, dryRun="All")
    assert answer.status_code == 403
    assert 'violates PodSecurity "restricted:latest"' in answer.json()["message"]


EVERYTHING: Values = merged(
    matrix.CHOICES["auth"]["tokens"],
    matrix.CHOICES["network"]["narrow"],
    matrix.CHOICES["prometheus"]["on"],
    matrix.CHOICES["dashboard"]["on"],
    matrix.CHOICES["ingress"]["more"],
    matrix.CHOICES["route"]["more"],
    matrix.TLS,
)

CHANGES: dict[str, tuple[Values, Values]] = {
    "a Deployment": (REMOTE, merged(REMOTE, EVERYTHING)),
    "a Deployment that is scaled": (REMOTE, merged(REMOTE, {"autoscaling": {"enabled": True}})),
    "labels and version": (
        REMOTE,
        merged(REMOTE, {"commonLabels": {"team": "a"}, "podLabels": {"tier": "b"}, "image": {"tag": "9.9"}}),
    ),
    "ports": (REMOTE, merged(REMOTE, {"ports": {"http": 9000, "probes": 9001}, "service": {"port": 80}})),
    "a StatefulSet": (LOCAL, merged(LOCAL, EVERYTHING)),
    "a StatefulSet's labels": (LOCAL, merged(LOCAL, {"commonLabels": {"team": "a"}, "image": {"tag": "9.9"}})),
    "from a Deployment to a StatefulSet": (REMOTE, LOCAL),
}


def lasting(objects: list[Object]) -> list[Object]:
    """Return the objects that are not hooks."""
    return [one for one in objects if "helm.sh/hook" not in one["metadata"].get("annotations", {})]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("values", [REMOTE, LOCAL], ids=["Deployment", "StatefulSet"])
def test_an_upgrade_with_a_faulty_configuration_changes_nothing(
    api: Api, helm: helm_python.Config, values: Values
) -> None:
    helm.install(CHART, name := release(), values)
    objects = lasting(render(values, release=name, namespace=NAMESPACE))
    before = [api.get(one).json()["metadata"]["resourceVersion"] for one in objects]
    with pytest.raises(helm_python.HelmError, match="pre-upgrade"):
        helm.upgrade(CHART, name, merged(values, {"config": {"default_store": "absent"}}))
    assert [api.get(one).json()["metadata"]["resourceVersion"] for one in objects] == before
    helm.upgrade(CHART, name, merged(values, {"config": {"logs": {"level": "debug"}}}))
    helm.uninstall(name)


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.usefixtures("jobs")
def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(
    api: Api, helm: helm_python.Config, case: str
) -> None:
    before, after = CHANGES[case]
    name = release()
    assert helm.install(CHART, name, before)["status"] == "deployed"
    first = lasting(render(before, release=name, namespace=NAMESPACE))
    assert [api.get(one).status_code for one in first] == [200] * len(first)

    assert helm.upgrade(CHART, name, after)["revision"] == 2
    second = lasting(render(after, release=name, namespace=NAMESPACE))
    assert [api.get(one).status_code for one in second] == [200] * len(second)
    helm.rollback(name, version=1)
    helm.uninstall(name)
    assert {api.get(one).status_code for one in [*first, *second]} == {404}


@pytest.mark.usefixtures("jobs")
def test_an_upgrade_with_the_same_values_changes_nothing(api: Api, helm: helm_python.Config) -> None:
    name, values = release(), merged(REMOTE, EVERYTHING)
    helm.install(CHART, name, values)
    objects = lasting(render(values, release=name, namespace=NAMESPACE))
    before = [api.get(one).json()["metadata"].get("generation", 0) for one in objects]
    helm.upgrade(CHART, name, values)
    assert [api.get(one).json()["metadata"].get("generation", 0) for one in objects] == before
    helm.uninstall(name)


def test_a_refused_installation_leaves_nothing_behind(api: Api, helm: helm_python.Config) -> None:
    with pytest.raises(helm_python.HelmError, match=r"config\.auth is missing"):
        helm.install(CHART, name := release(), {"config": REMOTE["config"]})
    assert [one["name"] for one in helm.list(all_states=True) if one["name"] == name] == []
    listed = api.raw(f"/api/v1/namespaces/{NAMESPACE}/configmaps")
    assert listed["items"] == []


def a_token(api: Api, account: str, audiences: list[str]) -> str:
    """Return a token that the cluster signs for a service account, like the token that a pod mounts."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": audiences}}
    answer = api.create(api.path("ServiceAccount", "v1", account) + "/token", request)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["status"]["token"])


def test_a_pod_that_trusts_the_cluster_authenticates_its_service_accounts(
    api: Api, cluster: Cluster, tmp_path: Path
) -> None:
    mounted = placed("/var/run/secrets/tableside/kubernetes", tmp_path)
    mounted.mkdir(parents=True)
    issuer = api.raw("/.well-known/openid-configuration")["issuer"]
    (mounted / "token").write_text(a_token(api, "mine", [issuer]))
    (mounted / "ca.crt").write_bytes(cluster.authority.read_bytes())
    entry = {
        "issuer": issuer,
        "audience": "tableside",
        "jwks_url": f"{cluster.url}/openid/v1/jwks",
        "ca_file": str(mounted / "ca.crt"),
        "token_file": str(mounted / "token"),
        "rules": [{"claims": {"sub": f"system:serviceaccount:{NAMESPACE}:default"}, "read": ["*"], "write": ["*"]}],
    }
    values = {"insecure": False, "config": {"auth": {"issuers": [entry]}}, "kubernetesIssuer": {"enabled": True}}
    with started(merged(LOCAL, values), tmp_path) as there:

        def put(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.put(f"{there.http}/v1/tables/t/records/a", json={}, headers=headers).status_code

        assert put(a_token(api, "default", ["tableside"])) == 204
        assert put(a_token(api, "mine", ["tableside"])) == 403
        assert put(a_token(api, "default", [issuer])) == 401
        assert put(cluster.token) == 401
