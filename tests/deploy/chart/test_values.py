"""Every value has an effect and a description, and values that cannot work are rejected."""

import re
from typing import Any

import helm_python
import jsonschema  # type: ignore[import-untyped]  # it ships none
import pytest

from deploy.chart.rendering import BACKUP, CHART, LOCAL, REMOTE, Values, container, merged, notes, render
from deploy.chart.values_table import DEFAULTS, SCHEMA, Path, default, described, table, written

pytestmark = pytest.mark.chart

HPA: Values = {"autoscaling": {"enabled": True}}
TLS: Values = {"tls": {"enabled": True, "secretName": "certificate"}}
MUTUAL: Values = merged(TLS, {"tls": {"clientCa": {"secretName": "authority"}}})
INGRESS: Values = {"ingress": {"enabled": True, "hosts": ["a.example"]}}


def test_the_templates_use_every_value() -> None:
    templates = "".join(file.read_text() for file in (CHART / "templates").rglob("*") if file.is_file())
    for path, _ in described():
        # The templates copy the settings of a probe as a whole.
        for name in (f"Values.{path[0]}", path[1] if path[0] == "probes" else path[-1]):
            assert re.search(rf"\.{re.escape(name)}\b", templates), ".".join(path)


def test_every_default_is_valid() -> None:
    jsonschema.validate(DEFAULTS, SCHEMA)
    for path, _ in described():
        default(path)


def test_the_schema_is_valid_and_declares_every_default() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    known = {path for path, _ in described()}

    def check_described(node: Any, path: Path) -> None:
        if path not in known:
            assert isinstance(node, dict), path
            for name, one in node.items():
                check_described(one, (*path, name))

    check_described(DEFAULTS, ())


def test_the_readme_describes_every_value() -> None:
    assert written() == table(), "run PYTHONPATH=tests:. python -m deploy.chart.values_table"


def stored(**options: Any) -> Values:
    """Return values with a second store."""
    return merged(REMOTE, {"config": {"stores": {"other": options}}})


def on_volume(path: str) -> Values:
    return merged(LOCAL, {"persistence": {"mountPath": path}, "config": {"stores": {"local": {"path": f"{path}/x"}}}})


LOOPBACK = ["LocalHost", "127.9.9.9", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"]
OCCUPIED = ["/backups", "//tmp/", "/etc", "/etc/other", "/var", "/proc/x"]
SECRETS: list[Values] = [
    stored(kind="postgres", dsn="postgresql://me:${NAME}secret@db/x"),
    stored(kind="postgres", dsn="postgresql://me@db/x?password=secret"),
    stored(kind="redis", url="rediss://:secret@redis:6379/0"),
    stored(kind="redis", url="redis://redis", password="secret"),
    stored(kind="plugged", accessKey="secret"),
]
WITHOUT_SECRETS: list[Values] = [
    stored(kind="postgres", dsn="postgresql://me:${PASSWORD}@db:5432/x?application_name=a@b"),
    stored(kind="postgres", dsn="postgresql://me@db:5432/x?password=${PASSWORD}"),
    stored(kind="plugged", token_file="/etc/tableside-secrets/a/token"),
]


def least(amount: int | str, *more: Values) -> Values:
    return merged(REMOTE, {"podDisruptionBudget": {"minAvailable": amount, "maxUnavailable": None}}, *more)


SCALED: Values = merged(HPA, {"autoscaling": {"minReplicas": 4}})
BLOCKING: list[Values] = [
    merged(REMOTE, {"podDisruptionBudget": {"maxUnavailable": "0%"}}),
    least("51%"),
    least(4, SCALED),
    least("1%", LOCAL),
]
ALLOWING: list[Values] = [
    least("50%"),
    least("75%", SCALED),
    least(1, {"replicas": 0}),
    merged(REMOTE, {"podDisruptionBudget": {"enabled": False, "maxUnavailable": 0}}),
    merged(REMOTE, {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}),
]

REFUSED: dict[str, tuple[Values, str]] = {
    **{f"loopback {host}": (merged(REMOTE, {"host": host}), "is a loopback address") for host in LOOPBACK},
    "a host in two lines": (merged(REMOTE, {"host": "0.0.0.0\n- --insecure"}), "host"),
    "one port for two": (merged(REMOTE, {"ports": {"http": 9000, "probes": 9000}}), "are equal"),
    **{f"a volume at {path}": (on_volume(path), "conflicts with") for path in OCCUPIED},
    "a volume at a path with ..": (on_volume("/data/../tmp"), "contains . or .."),
    "a volume at the secrets": (
        merged(on_volume("/etc/tableside-secrets/a"), {"secrets": {"files": {"a": {"secretName": "a"}}}}),
        "conflicts with",
    ),
    "RocksDB at a path with ..": (
        merged(LOCAL, {"config": {"stores": {"local": {"path": "/data/../tmp/x"}}}}),
        "config.stores.local.path contains ..",
    ),
    "another volume at a path of the chart": (
        merged(REMOTE, {"extraVolumeMounts": [{"name": "more", "mountPath": "/tmp/"}]}),
        "extraVolumeMounts contains /tmp/",
    ),
    **{f"a secret in the configuration {number}": (one, "store it in a Secret") for number, one in enumerate(SECRETS)},
    "no configuration": ({}, "config.stores"),
    "no auth": ({"config": REMOTE["config"]}, "config.auth is missing"),
    "two pods on RocksDB": (merged(LOCAL, {"replicas": 2}), "one process can open"),
    "two pods on a volume": (merged(REMOTE, {"persistence": {"enabled": True}, "replicas": 2}), "one replica"),
    "a scaled volume": (merged(REMOTE, {"persistence": {"enabled": True}}, HPA), "excludes autoscaling"),
    "a backup of another store": (
        merged(REMOTE, {"backup": {**BACKUP["backup"], "store": "cache"}}),
        "not a store of kind rocksdb",
    ),
    "a backup to no volume": (merged(BACKUP, {"backup": {"existingClaim": ""}}), "backup.existingClaim is missing"),
    "a backup of a volume for one pod": (
        merged(BACKUP, {"persistence": {"accessModes": ["ReadWriteOncePod"]}}),
        "excludes the access mode ReadWriteOncePod",
    ),
    "RocksDB on no volume": (merged(LOCAL, {"persistence": {"enabled": False}, "replicas": 1}), "persistence.enabled"),
    "RocksDB in a folder with a like name": (
        merged(LOCAL, {"config": {"stores": {"local": {"path": "/database"}}}}),
        "not on a volume",
    ),
    "workers on RocksDB": (merged(LOCAL, {"workers": 2}), "workers: 1"),
    "workers on a cache": (
        merged(
            REMOTE,
            {"workers": 2, "config": {"tables": {"t": {"store": "cache", "cache": {"ttl_s": 1, "records_max": 1}}}}},
        ),
        "has a cache: set workers: 1",
    ),
    "too little time to end": (merged(REMOTE, {"terminationGracePeriodSeconds": 35}), "above 35"),
    "an end of unknown length": (
        merged(REMOTE, {"config": {"limits": {"shutdown_s": "${S}"}}}),
        "terminationGracePeriodSeconds must be set",
    ),
    "a client's authority without TLS": (
        merged(REMOTE, {"tls": {"clientCa": {"secretName": "authority"}}}),
        "tls.clientCa requires tls.enabled",
    ),
    "two budgets": (merged(REMOTE, {"podDisruptionBudget": {"minAvailable": 1}}), "either minAvailable"),
    **{f"a blocked drain {number}": (one, "no node could be drained") for number, one in enumerate(BLOCKING)},
    "a rollout that never begins": (
        merged(REMOTE, {"strategy": {"rollingUpdate": {"maxSurge": "0%"}}}),
        "would never replace a pod",
    ),
    "more at least than at most": (merged(REMOTE, HPA, {"autoscaling": {"minReplicas": 11}}), "minReplicas is above"),
    "a route of no gateway": (merged(REMOTE, {"httpRoute": {"enabled": True}}), "parentRefs"),
    "an unknown value": (merged(REMOTE, {"replicaCount": 2}), "replicaCount"),
    "a number as text": (merged(REMOTE, {"replicas": "2"}), "replicas"),
    "a token among the values": (merged(REMOTE, {"tests": {"token": {"value": "x"}}}), "token"),
    "a tag that is none": (merged(REMOTE, {"image": {"tag": "a b"}}), "tag"),
    "a size that is none": (merged(LOCAL, {"persistence": {"size": "10 GB"}}), "size"),
    "a variable that is none": (merged(REMOTE, {"secrets": {"env": {"a-b": {"secretName": "s", "key": "k"}}}}), "a-b"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_values_that_cannot_work_are_rejected_before_installation(case: str) -> None:
    values, why = REFUSED[case]
    with pytest.raises(helm_python.HelmError, match=re.escape(why)) as refused:
        render(values)
    assert not re.search(":secret|secret@", str(refused.value))


@pytest.mark.parametrize("values", [*WITHOUT_SECRETS, *ALLOWING], ids=str)
def test_similar_values_that_work_are_accepted(values: Values) -> None:
    assert render(values)


@pytest.mark.parametrize("host", ["::", "::ffff:10.0.0.1", "127x.example"])
def test_the_host_is_a_single_argument(host: str) -> None:
    values = merged(REMOTE, {"host": host})
    assert container(render(values))["args"][2] == f"--host={host}"


def test_every_argument_is_a_string() -> None:
    assert {type(argument) for argument in container(render(merged(MUTUAL, REMOTE)))["args"]} == {str}


@pytest.mark.parametrize("path", ["/var/lib/tableside", "/srv/tables/", "/tmpdata"])
def test_a_volume_can_be_mounted_at_other_paths(path: str) -> None:
    [mounted] = [mount for mount in container(render(on_volume(path)))["volumeMounts"] if mount["name"] == "data"]
    assert mounted["mountPath"] == path


def test_the_chart_can_be_a_dependency_of_another_with_a_condition() -> None:
    assert render(REMOTE) == render(merged(REMOTE, {"enabled": True, "global": {"anything": 1}}))


def test_the_notes_show_requests_with_certificate_and_token_and_warn() -> None:
    plain = notes(REMOTE)
    assert "WITHOUT AUTH" in plain
    assert "tableside tables --url http://127.0.0.1:8080\n" in plain
    assert "helm --namespace tables test demo" in plain
    guarded = notes(merged(REMOTE, {"config": {"auth": {"tokens": [{"name": "a", "sha256": "1" * 64}]}}}))
    assert "with a token" in guarded
    assert "WITHOUT AUTH" not in guarded
    address = "https://demo-tableside.tables:8080/readyz"
    assert f"curl --connect-to ::127.0.0.1:8080 --cacert ca.crt {address}" in notes(merged(REMOTE, TLS))
    assert "--cert caller.crt --key caller.key" in notes(merged(REMOTE, MUTUAL))
    assert "volume is deleted" in notes(merged(LOCAL, {"persistence": {"whenDeleted": "Delete"}}))
    assert "volume is deleted" not in notes(LOCAL)
