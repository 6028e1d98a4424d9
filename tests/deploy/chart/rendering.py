"""Render the chart with Helm: from values to Kubernetes objects, without a cluster or network."""

import functools
import json
from typing import Any

import helm_python
import yaml

from scripts.bootstrap import ROOT

CHART = ROOT / "helm"

Values = dict[str, Any]
Object = dict[str, Any]

REMOTE: Values = {"config": {"stores": {"cache": {"kind": "redis", "url": "redis://redis:6379/0"}}}, "insecure": True}
"""The minimal values for a store outside the pod."""

LOCAL: Values = {
    "config": {"stores": {"local": {"kind": "rocksdb", "path": "/data/tables"}}, "auto_create": True},
    "insecure": True,
    "persistence": {"enabled": True},
}
"""The minimal values for RocksDB."""

BACKUP: Values = {**LOCAL, "backup": {"enabled": True, "store": "local", "existingClaim": "backups"}}
"""The minimal values for RocksDB with backups."""


def render(values: Values, release: str = "demo", namespace: str = "tables") -> list[Object]:
    """Return the objects that an installation would create. Raise HelmError if the chart rejects the values."""
    files = _files(json.dumps(values), release, namespace)
    texts = [text for name, text in sorted(files.items()) if not name.endswith("NOTES.txt")]
    return [one for text in texts for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def notes(values: Values) -> str:
    """Return the text that the operator sees after an installation."""
    return _files(json.dumps(values), "demo", "tables")["tableside/templates/NOTES.txt"]


@functools.cache
def _files(values: str, release: str, namespace: str) -> dict[str, str]:
    """Return the rendered text of each template. It is cached, because many tests use the same values."""
    chart, given = _chart(), json.loads(values)
    chart.validate_schema(given)
    return dict(chart.render(given, name=release, namespace=namespace))


@functools.cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def merged(*values: Values) -> Values:
    """Merge sets of values like several files of values: mappings are merged, otherwise the last value wins."""
    result: Values = {}
    for one in values:
        for name, value in one.items():
            both = isinstance(value, dict) and isinstance(result.get(name), dict)
            result[name] = merged(result[name], value) if both else value
    return result


def all_of(objects: list[Object], kind: str) -> list[Object]:
    """Return the objects of a kind."""
    return [one for one in objects if one["kind"] == kind]


def only(objects: list[Object], kind: str) -> Object:
    """Return the only object of a kind. Fail if there is none or more than one."""
    [found] = all_of(objects, kind)
    return found


def workload(objects: list[Object]) -> Object:
    """Return the Deployment or StatefulSet."""
    [found] = [one for one in objects if one["kind"] in ("Deployment", "StatefulSet")]
    return found


def pod(objects: list[Object]) -> Object:
    """Return the template of the service's pods."""
    template: Object = workload(objects)["spec"]["template"]
    return template


def container(objects: list[Object]) -> Object:
    """Return the container that runs the service."""
    [found] = [one for one in pod(objects)["spec"]["containers"] if one["name"] == "tableside"]
    return dict(found)


def check_pod(objects: list[Object]) -> Object:
    """Return the template of the pod that checks the configuration before an upgrade."""
    template: Object = only(objects, "Job")["spec"]["template"]
    return template


def backup_pods(objects: list[Object]) -> list[Object]:
    """Return the template of the pods that back up RocksDB, if there is one."""
    return [one["spec"]["jobTemplate"]["spec"]["template"] for one in all_of(objects, "CronJob")]


def pod_security_faults(spec: Object) -> list[str]:
    """Return how a pod differs from the restricted profile of Kubernetes' Pod Security Standards.

    The profile allows a writable root file system, and a user that only the image chooses. This check does not.
    """
    own = spec.get("securityContext", {})
    rules = {
        "host": not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"},
        "volumes": not any("hostPath" in volume for volume in spec.get("volumes", [])),
        "user": own.get("runAsNonRoot") is True and own.get("runAsUser") not in (0, None),
        "seccomp": own.get("seccompProfile") == {"type": "RuntimeDefault"},
    }
    for one in [*spec["containers"], *spec.get("initContainers", [])]:
        rules[f"container {one['name']}"] = one.get("securityContext") == CONTAINER_SECURITY
    return [rule for rule, is_met in rules.items() if not is_met]


CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def configuration(objects: list[Object]) -> str:
    """Return the text of the service's configuration file."""
    found = {one["metadata"]["name"]: one["data"] for one in all_of(objects, "ConfigMap")}
    [volume] = [one for one in pod(objects)["spec"]["volumes"] if one["name"] == "config"]
    return str(found[volume["configMap"]["name"]]["config.yaml"])


def service(objects: list[Object]) -> Object:
    """Return the Service for callers."""
    [found] = [one for one in all_of(objects, "Service") if one["spec"].get("clusterIP") != "None"]
    return found
