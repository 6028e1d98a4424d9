"""The chart rejects a configuration before an installation that the service would reject at start."""

import re
from pathlib import Path
from typing import Any

import helm_python
import pytest

from deploy.chart.rendering import REMOTE, Values, configuration, merged, render
from tableside.settings import SettingsError, load, validate

pytestmark = pytest.mark.chart

TABLE: Values = {"store": "cache"}
ISSUER: Values = {"issuer": "https://issuer", "audience": "a", "rules": [{"claims": {"sub": "b"}}]}


def table(**members: Any) -> Values:
    return {"tables": {"t": {**TABLE, **members}}}


def store(**members: Any) -> Values:
    return {"stores": {"other": members}}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"tabels": {}}, "config': additional properties 'tabels' not allowed"),
        ({"limits": {"shutdown_s": 0.5}}, "config/limits/shutdown_s': minimum: got 0.5, want 1"),
        ({"limits": {"drain_s": "soon"}}, "config/limits/drain_s': got string, want number"),
        ({"logs": {"level": "loud"}}, "config/logs/level': value must be one of 'debug', 'info', 'warning', 'error'"),
        ({"traces": {"endpoint": "collector:4317"}}, "config/traces/endpoint': 'collector:4317' does not match"),
        ({"auth": {"tokens": [{"name": "etl"}]}}, "config/auth/tokens/0': missing property 'sha256'"),
        ({"auth": {"issuers": [{**ISSUER, "audience": 5}]}}, "config/auth/issuers/0/audience': got number"),
        (table(ttl=60), "config/tables/t': additional properties 'ttl' not allowed"),
        (table(key={"id": "text"}), "config/tables/t/key/id': value must be one of"),
        ({"tables": {"a b": TABLE}}, "invalid propertyName 'a b'"),
        (store(kind="redis"), "config/stores/other': missing property 'url'"),
        (store(kind="memory", path="/data"), "config/stores/other': additional properties 'path' not allowed"),
        (store(kind="partitioned", partitions=[]), "config/stores/other/partitions': minItems"),
    ],
    ids=str,
)
def test_helm_rejects_what_the_service_rejects(config: Values, why: str) -> None:
    values = merged(REMOTE, {"config": config})
    with pytest.raises(helm_python.HelmError, match=re.escape(why)):
        render(values)
    with pytest.raises(SettingsError):
        validate(values["config"], {})


ENVIRONMENT = {"DSN": "postgresql://u:p@db/x", "LAYOUT": "columns", "NAME": "etl", "NUMBER": "5", "SHA": "1" * 64}


@pytest.mark.parametrize(
    "config",
    [
        {
            "limits": {"in_flight_max": "${NUMBER}0", "drain_s": "0.5"},
            "auto_create": "true",
            "hosts": ["${NAME}.example"],
        },
        {"auth": {"tokens": [{"name": "${NAME}", "sha256": "${SHA}", "read": ["${NAME}*"]}]}},
        {"auth": {"issuers": [{**ISSUER, "audience": ["a"], "rules": [{"claims": {"sub": ["a", "b*"]}}]}]}},
        table(ttl_s="${NUMBER}", name="${NAME}", key={"id": "string"}, cache=None, concurrency_max=5.0),
        store(kind="postgres", dsn="${DSN}", connections_max="${NUMBER}", schema="${NAME}")
        | {"tables": {"t": {"store": "other", "layout": "${LAYOUT}"}}},
    ],
    ids=str,
)
def test_helm_accepts_what_the_service_accepts(config: Values, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(configuration(render(merged(REMOTE, {"config": config}))))
    assert load(file, ENVIRONMENT).stores


def test_plug_ins_have_any_options_of_stores_and_tables() -> None:
    config = merged(store(kind="example", anything=[{"a": None}]), {"tables": {"t": {"store": "other", "shards": 5}}})
    assert "shards: 5" in configuration(render(merged(REMOTE, {"config": config})))
    config["tables"]["t"]["deadline_s"] = 0
    with pytest.raises(helm_python.HelmError, match="deadline_s"):
        render(merged(REMOTE, {"config": config}))
