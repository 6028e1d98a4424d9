"""Rules of Kubernetes' Pod Security Standard "restricted" for pods, and stricter rules of this project.

Source: the page Pod Security Standards of Kubernetes' documentation, as of version 1.36.
"""

from collections.abc import Iterator
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SECCOMP = {"RuntimeDefault", "Localhost"}
SHARED_WITH_THE_HOST = ("hostNetwork", "hostPID", "hostIPC")
SELINUX_TYPES = {None, "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def faults(spec: dict[str, Any]) -> list[str]:
    """Return the rules that a pod's specification violates."""
    return [*_of_pod(spec), *(fault for one in _containers(spec) for fault in _of_container(one, spec))]


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for kind in ("containers", "initContainers", "ephemeralContainers") for one in spec.get(kind, [])]


def _of_pod(spec: dict[str, Any]) -> Iterator[str]:
    yield from (name for name in SHARED_WITH_THE_HOST if spec.get(name))
    for volume in spec.get("volumes", []):
        yield from (f"volume {kind}" for kind in volume.keys() - {"name"} - VOLUMES)
    if spec.get("securityContext", {}).get("sysctls"):
        yield "sysctls"


def _of_container(one: dict[str, Any], spec: dict[str, Any]) -> Iterator[str]:
    own = one.get("securityContext", {})
    context = {**spec.get("securityContext", {}), **own}
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if context.get("runAsNonRoot") is not True:
        yield "runAsNonRoot"
    if context.get("runAsUser") in (0, None):  # the standard allows its absence
        yield "runAsUser"
    if own.get("readOnlyRootFilesystem") is not True:  # the standard does not require it
        yield "readOnlyRootFilesystem"
    if context.get("seccompProfile", {}).get("type") not in SECCOMP:
        yield "seccompProfile"
    yield from _of_capabilities(own.get("capabilities", {}))
    yield from _of_the_rest(one, own)


def _of_capabilities(capabilities: dict[str, list[str]]) -> Iterator[str]:
    if "ALL" not in capabilities.get("drop", []):
        yield "capabilities.drop"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "capabilities.add"


def _of_the_rest(one: dict[str, Any], own: dict[str, Any]) -> Iterator[str]:
    if any("hostPort" in port for port in one.get("ports", [])):
        yield "hostPort"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    selinux = own.get("seLinuxOptions", {})
    if selinux.get("type") not in SELINUX_TYPES or "user" in selinux or "role" in selinux:
        yield "seLinuxOptions"
    if own.get("windowsOptions", {}).get("hostProcess"):
        yield "hostProcess"
