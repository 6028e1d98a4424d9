"""The service gets the configuration unchanged and accepts it. Pods are replaced only when necessary."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import helm_python
import pytest
from hypothesis import given, settings, strategies as st

from deploy.chart.rendering import (
    LOCAL,
    REMOTE,
    Object,
    Values,
    check_pod,
    configuration,
    container,
    merged,
    pod,
    render,
    workload,
)
from tableside.settings import SettingsError, load, validate
from tableside.settings.faults import Faults
from tableside.settings.yaml_file import parse_yaml, read_text

PLAIN = st.booleans() | st.integers(-(2**53), 2**53) | st.integers(-(10**9), 10**9).map(lambda n: n / 1000)
PRINTED = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20)
AMBIGUOUS = ["=", "yes", "~", "1e3", "0x10", "014", "1_000", "12:30:45", "2026-11-21", ".inf", "---", "a\nb"]
TEXTS = PRINTED | st.sampled_from(AMBIGUOUS)
DOCUMENTS = st.dictionaries(TEXTS, PLAIN | TEXTS | st.lists(TEXTS, max_size=3), max_size=5)


@settings(max_examples=15, deadline=None)
@given(documents=st.lists(DOCUMENTS, min_size=2, max_size=8))
def test_the_service_reads_the_configuration_unchanged(documents: list[dict[str, Any]]) -> None:
    objects = render(merged(REMOTE, {"config": {"stores": {"other": {"kind": "plug-in", "options": documents}}}}))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(configuration(objects))
        assert parse_yaml(read_text(file), "", Faults())["stores"]["other"]["options"] == documents


CHECKED = merged(
    REMOTE,
    {
        "insecure": False,
        "config": {
            "auth": {"tokens": [{"name": "etl", "sha256": "1" * 64, "read": ["*"], "write": ["a", "b*"]}]},
            "limits": {"body_bytes_max": 16777216, "shutdown_s": 60, "drain_s": 0.5},
            "logs": {"requests": 0.01},
        },
    },
)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"tabels": {}}, "config': additional properties 'tabels' not allowed"),
        ({"limits": {"shutdown_s": 0.5}}, "config/limits/shutdown_s': minimum: got 0.5, want 1"),
        ({"logs": {"level": "loud"}}, "config/logs/level': value must be one of 'debug', 'info', 'warning', 'error'"),
        ({"traces": {"endpoint": "collector:4317"}}, "config/traces/endpoint': 'collector:4317' does not match"),
        ({"tables": {"t": {"store": "cache", "ttl": 60}}}, "config/tables/t': additional properties 'ttl' not allowed"),
        ({"tables": {"a b": {"store": "cache"}}}, "invalid propertyName 'a b'"),
        ({"stores": {"other": {"kind": "redis"}}}, "config/stores/other': missing property 'url'"),
    ],
    ids=str,
)
def test_helm_rejects_a_configuration_that_the_service_rejects(config: Values, why: str) -> None:
    values = merged(REMOTE, {"config": config})
    with pytest.raises(helm_python.HelmError, match=re.escape(why)):
        render(values)
    with pytest.raises(SettingsError):
        validate(values["config"], {})


ISSUER = {"issuer": "https://issuer", "audience": ["a"], "rules": [{"claims": {"sub": ["a", "b*"]}}]}


@pytest.mark.parametrize(
    "config",
    [
        {"limits": {"in_flight_max": "${N}0", "drain_s": "0.5"}, "auto_create": "true", "auth": {"issuers": [ISSUER]}},
        {"tables": {"t": {"store": "cache", "ttl_s": "${N}", "name": "x", "cache": None, "concurrency_max": 5.0}}},
        {"stores": {"other": {"kind": "postgres", "dsn": "${DSN}", "connections_max": "${N}", "schema": "x"}}},
    ],
    ids=str,
)
def test_helm_accepts_a_configuration_that_the_service_accepts(config: Values, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(configuration(render(merged(REMOTE, {"config": config}))))
    assert load(file, {"DSN": "postgresql://u:p@db/x", "N": "5"}).stores


@pytest.mark.server
def test_the_check_before_an_upgrade_fails_for_a_faulty_configuration_without_stores(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(configuration(render(CHECKED)))
    [checking] = check_pod(render(CHECKED))["spec"]["containers"]
    arguments = [one.replace("/etc/tableside/config.yaml", str(file)) for one in checking["args"]]
    command = [sys.executable, "-m", "tableside", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    file.write_text(configuration(render(merged(CHECKED, {"config": {"default_store": "absent"}}))))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "default_store" in done.stderr


def checksum(objects: list[Object]) -> str:
    return str(pod(objects)["metadata"]["annotations"]["checksum/config"])


def test_pods_are_replaced_only_when_the_configuration_changes() -> None:
    before = checksum(render(REMOTE))
    assert checksum(render(merged(REMOTE, {"service": {"port": 80}, "commonLabels": {"a": "b"}}))) == before
    assert checksum(render(merged(REMOTE, {"config": {"logs": {"level": "debug"}}}))) != before


def test_pods_stay_when_the_service_reloads_the_configuration_itself() -> None:
    values = merged(REMOTE, {"restartOnConfigChange": False})
    changed = render(merged(values, {"config": {"logs": {"level": "debug"}}}))
    assert pod(changed) == pod(render(values))


def test_a_secret_becomes_an_environment_variable() -> None:
    values = merged(REMOTE, {"secrets": {"env": {"REDIS_PASSWORD": {"secretName": "redis", "key": "password"}}}})
    [variable] = container(render(values))["env"]
    assert variable == {
        "name": "REDIS_PASSWORD",
        "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}},
    }


def test_the_grace_period_covers_the_shutdown_of_the_service() -> None:
    def period(values: Values) -> int:
        return int(pod(render(values))["spec"]["terminationGracePeriodSeconds"])

    assert container(render(REMOTE))["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert period(REMOTE) == 5 + 30 + 5
    assert period(merged(REMOTE, {"config": {"limits": {"shutdown_s": 7.5}}, "preStopSleepSeconds": 0})) == 8 + 5
    assert period(merged(REMOTE, {"terminationGracePeriodSeconds": 36})) == 36
    unknown = {"config": {"limits": {"shutdown_s": "${S}"}}, "terminationGracePeriodSeconds": 90}
    assert period(merged(REMOTE, unknown)) == 90


def test_replicas_sets_the_number_of_pods_even_zero() -> None:
    def pods(values: Values) -> int:
        return int(workload(render(values))["spec"]["replicas"])

    assert [pods(REMOTE), pods(LOCAL), pods(merged(REMOTE, {"replicas": 7}))] == [2, 1, 7]
    assert [pods(merged(values, {"replicas": 0})) for values in (REMOTE, LOCAL)] == [0, 0]


def test_ids_that_openshift_assigns_can_be_omitted() -> None:
    ids: Values = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}
    assert not pod(render(merged(REMOTE, ids)))["spec"]["securityContext"].keys() & ids["podSecurityContext"].keys()
