"""Kubernetes accepts the chart's objects, with many sets of values and in several versions."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import helm_python
import kubernetes_validate  # type: ignore[import-untyped]  # it ships none
import pytest

from deploy.chart import matrix
from deploy.chart.rendering import (
    CHART,
    LOCAL,
    REMOTE,
    Object,
    all_of,
    backup_pods,
    check_pod,
    container,
    merged,
    pod,
    pod_security_faults,
    render,
    service,
    workload,
)

pytestmark = [pytest.mark.daily, pytest.mark.chart]

VERSIONS = ["1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]
CUSTOM = {"HTTPRoute", "PrometheusRule", "ServiceMonitor"}
"""Kinds of other projects, whose definitions the API server of `test_kubernetes.py` has."""

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
RECOMMENDED = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "version", "managed-by", "part-of")}

Renderings = list[tuple[dict[str, str], list[Object]]]


@pytest.fixture(scope="module")
def renderings(full: bool) -> Renderings:
    """Every row of the matrix, rendered. Some releases have the longest name that Helm allows."""
    names, rows = ["demo", "tableside", "r" * 53], matrix.rows(matrix.FULL_ROWS if full else matrix.ROWS)
    return [(row, render(matrix.values_of(row), release=names[number % 3])) for number, row in enumerate(rows)]


@pytest.fixture(scope="module")
def read_once() -> Iterator[None]:
    """Read the schemas of Kubernetes once instead of for every object."""
    with pytest.MonkeyPatch.context() as patch:
        read = kubernetes_validate.utils.schema_contents
        patch.setattr(kubernetes_validate.utils, "schema_contents", functools.cache(read))
        yield


def test_helm_lint_reports_nothing() -> None:
    for values in ({}, REMOTE, LOCAL, *(matrix.values_of(row) for row in matrix.rows(4))):
        report = helm_python.lint(CHART, values, strict=True)
        assert report["messages"] == []
        assert report["errors"] == []


def test_the_packaged_chart_renders_the_same_objects(tmp_path: Path) -> None:
    packed = helm_python.package(CHART, destination=tmp_path, version="1.2.3")
    assert Path(packed).name == "tableside-1.2.3.tgz"
    switched = ("prometheusRule", "dashboard", "serviceMonitor", "networkPolicy")
    values = merged(REMOTE, {name: {"enabled": True} for name in switched})
    with helm_python.Chart.load(CHART) as loose, helm_python.Chart.load(packed) as chart:
        made = chart.render(values, name="demo", namespace="tables")
        expected = loose.render(values, name="demo", namespace="tables")
    assert {name: text.replace("tableside-1.2.3", "tableside-1.0.0") for name, text in made.items()} == expected
    assert "ask" in expected["tableside/templates/tests/ask.yaml"]
    assert "schemaVersion" in expected["tableside/templates/dashboard.yaml"]


@pytest.mark.usefixtures("read_once")
def test_every_object_is_valid_in_every_version_of_kubernetes(renderings: Renderings, full: bool) -> None:
    distinct = {json.dumps(one, sort_keys=True): one for _, objects in renderings for one in objects}
    ours = [one for one in distinct.values() if one["kind"] not in CUSTOM]
    assert len(ours) > (500 if full else 150)
    for version in VERSIONS:
        for one in ours:
            kubernetes_validate.validate(one, version, strict=True)


def test_every_pod_complies_with_the_restricted_profile(renderings: Renderings) -> None:
    for row, objects in renderings:
        pods = [pod(objects), check_pod(objects), *backup_pods(objects), *all_of(objects, "Pod")]
        specs = [one["spec"] for one in pods]
        assert [pod_security_faults(spec) for spec in specs] == [[] for _ in specs], row


def test_selectors_match_only_pods_of_the_service(renderings: Renderings) -> None:
    for row, objects in renderings:
        labels = pod(objects)["metadata"]["labels"]
        selectors = [
            workload(objects)["spec"]["selector"]["matchLabels"],
            *(one["spec"]["selector"] for one in all_of(objects, "Service")),
            *(one["spec"]["selector"]["matchLabels"] for one in all_of(objects, "PodDisruptionBudget")),
            *(one["spec"]["podSelector"]["matchLabels"] for one in all_of(objects, "NetworkPolicy")),
            *(one["labelSelector"]["matchLabels"] for one in pod(objects)["spec"].get("topologySpreadConstraints", [])),
        ]
        tests = [
            one["metadata"]["labels"] for one in (check_pod(objects), *backup_pods(objects), *all_of(objects, "Pod"))
        ]
        for selector in selectors:
            assert selector.items() <= labels.items(), row
            assert not any(selector.items() <= others.items() for others in tests), row


def test_selectors_contain_only_constant_labels() -> None:
    for values in (REMOTE, LOCAL):
        plain = workload(render(values))["spec"]
        dressed = workload(
            render({**values, "commonLabels": {"a": "b"}, "podLabels": {"c": "d"}, "image": {"tag": "other"}})
        )["spec"]
        assert plain["selector"] == dressed["selector"]
        assert plain.get("volumeClaimTemplates") == dressed.get("volumeClaimTemplates")


def test_the_service_monitor_finds_one_service_and_its_port(renderings: Renderings) -> None:
    monitored = [(objects, one) for _, objects in renderings for one in all_of(objects, "ServiceMonitor")]
    assert monitored
    for objects, monitor in monitored:
        wanted = monitor["spec"]["selector"]["matchLabels"]
        [found] = [one for one in all_of(objects, "Service") if wanted.items() <= one["metadata"]["labels"].items()]
        assert found["spec"]["clusterIP"] == "None"
        assert found["spec"]["publishNotReadyAddresses"] is True
        assert [end["port"] for end in monitor["spec"]["endpoints"]] == ["probes"]
        assert "probes" in [port["name"] for port in found["spec"]["ports"]]


def test_every_named_port_exists(renderings: Renderings) -> None:
    for row, objects in renderings:
        mine = container(objects)
        ports = {port["name"]: port["containerPort"] for port in mine["ports"]}
        assert ports.keys() == {"http", "probes"}
        assert f"--port={ports['http']}" in mine["args"], row
        assert f"--probes-port={ports['probes']}" in mine["args"]
        named = [mine[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")]
        assert named == ["probes"] * 3
        for one in all_of(objects, "Service"):
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports.keys()
        for one in all_of(objects, "NetworkPolicy"):
            assert {port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]} == ports.keys()


def test_references_to_the_service_use_its_name_and_port(renderings: Renderings) -> None:
    for row, objects in renderings:
        callers = service(objects)
        [port] = callers["spec"]["ports"]
        for one in all_of(objects, "Ingress"):
            for rule in one["spec"]["rules"]:
                for path in rule["http"]["paths"]:
                    to = path["backend"]["service"]
                    assert to == {"name": callers["metadata"]["name"], "port": {"name": port["name"]}}, row
        for one in all_of(objects, "HTTPRoute"):
            to = {"name": callers["metadata"]["name"], "port": port["port"]}
            assert [rule["backendRefs"] for rule in one["spec"]["rules"]] == [[to]], row
        for one in all_of(objects, "HorizontalPodAutoscaler"):
            target = one["spec"]["scaleTargetRef"]
            assert (target["kind"], target["name"]) == ("Deployment", workload(objects)["metadata"]["name"])
        for one in all_of(objects, "StatefulSet"):
            assert one["spec"]["serviceName"] in [of["metadata"]["name"] for of in all_of(objects, "Service")]
            # A pod that never became ready must not block its replacement.
            assert one["spec"]["podManagementPolicy"] == "Parallel"
        url = f"{port['appProtocol']}://{callers['metadata']['name']}.tables:{port['port']}"
        for one in all_of(objects, "Pod"):
            [asking] = one["spec"]["containers"]
            assert {"name": "URL", "value": url} in asking["env"], row
        assert ("replicas" in workload(objects)["spec"]) is not bool(all_of(objects, "HorizontalPodAutoscaler"))


def test_volumes_and_mounts_match(renderings: Renderings) -> None:
    for row, objects in renderings:
        there = {one["name"] for one in pod(objects)["spec"]["volumes"]}
        there |= {one["metadata"]["name"] for one in workload(objects)["spec"].get("volumeClaimTemplates", [])}
        mounts = container(objects)["volumeMounts"]
        assert {one["name"] for one in mounts} == there, row
        assert len({one["mountPath"] for one in mounts}) == len(mounts)
        assert not any("subPath" in one for one in mounts)


AS_THE_SERVICE = ("image", "env", "envFrom")


def test_the_check_before_an_upgrade_runs_as_the_service_without_its_data(renderings: Renderings) -> None:
    for row, objects in renderings:
        [mine], service = check_pod(objects)["spec"]["containers"], container(objects)
        assert mine["args"] == ["check", service["args"][1].partition("=")[2]]
        assert [mine.get(name) for name in AS_THE_SERVICE] == [service.get(name) for name in AS_THE_SERVICE], row
        assert mine["volumeMounts"] == [one for one in service["volumeMounts"] if one["name"] != "data"]
        volumes = {one["name"]: one for one in check_pod(objects)["spec"]["volumes"]}
        assert {one["name"] for one in mine["volumeMounts"]} == volumes.keys()
        hooks = [one for one in objects if "helm.sh/hook" in one["metadata"].get("annotations", {})]
        before = [one for one in hooks if one["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"]
        assert [one["kind"] for one in before] == ["ConfigMap", "Job"]
        assert before[0]["metadata"]["name"] == volumes["config"]["configMap"]["name"]


def test_a_backup_reads_the_volume_of_the_service_on_its_node(renderings: Renderings) -> None:
    for row, objects in renderings:
        for template in backup_pods(objects):
            [mine], service, spec = template["spec"]["containers"], container(objects), template["spec"]
            assert [mine.get(name) for name in AS_THE_SERVICE] == [service.get(name) for name in AS_THE_SERVICE], row
            [mounted] = [one for one in mine["volumeMounts"] if one["name"] == "data"]
            assert mounted.pop("readOnly") is True
            assert mounted in service["volumeMounts"]
            volumes = {one["name"]: one for one in spec["volumes"]}
            assert {one["name"] for one in mine["volumeMounts"]} == volumes.keys(), row
            own = f"data-{workload(objects)['metadata']['name']}-0"
            claim = "old" if workload(objects)["spec"].get("volumeClaimTemplates") is None else own
            assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claim
            [near] = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert near["labelSelector"] == workload(objects)["spec"]["selector"]


def test_names_are_unique_and_fit_the_limits_of_kubernetes(renderings: Renderings) -> None:
    for row, objects in renderings:
        names = [(one["kind"], one["metadata"]["name"]) for one in objects]
        assert len(set(names)) == len(names), row
        for one in [*objects, pod(objects)]:
            assert NAME.fullmatch(one["metadata"].get("name", "pod")), row
            labels = one["metadata"]["labels"].values()
            assert all(LABEL.fullmatch(text) for text in labels), row
            assert ("tables" in labels) is (row["labels"] == "many")
            assert "not-this" not in labels, "other labels do not override those of the chart"
            assert "namespace" not in one["metadata"]
        assert all(one["metadata"]["labels"].keys() >= RECOMMENDED for one in objects)
        # A StatefulSet labels its pods with its name, a hyphen and a digest of ten characters.
        assert len(workload(objects)["metadata"]["name"]) <= 52


def test_no_secret_is_created_and_tokens_are_mounted_only_on_request(renderings: Renderings) -> None:
    for row, objects in renderings:
        assert all_of(objects, "Secret") == []
        asked = row["account"] == "default"
        assert pod(objects)["spec"]["automountServiceAccountToken"] is asked
        # A Service named tableside would set TABLESIDE_PORT to an address.
        assert pod(objects)["spec"]["enableServiceLinks"] is False
        projected = [one for one in pod(objects)["spec"]["volumes"] if "projected" in one]
        assert bool(projected) is (row["auth"] == "issuer")
