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
TOKEN: Values = {"name": "etl", "sha256": "1" * 64}
ISSUER: Values = {"issuer": "https://issuer", "audience": "a", "rules": [{"claims": {"sub": "b"}}]}


def table(**members: Any) -> Values:
    return {"tables": {"t": {**TABLE, **members}}}


def store(**members: Any) -> Values:
    return {"stores": {"other": members}}


REFUSED: list[tuple[Values, str]] = [
    ({"tabels": {}}, "config': additional properties 'tabels' not allowed"),
    ({"stores": "redis"}, "config/stores': got string, want object"),
    ({"limits": {"unknown": 1}}, "config/limits': additional properties 'unknown' not allowed"),
    ({"limits": {"shutdown_s": 0.5}}, "config/limits/shutdown_s': minimum: got 0.5, want 1"),
    ({"limits": {"value_bytes_max": 2**25}}, "config/limits/value_bytes_max': maximum"),
    ({"limits": {"drain_s": "soon"}}, "config/limits/drain_s': got string, want number"),
    ({"logs": {"level": "loud"}}, "config/logs/level': value must be one of 'debug', 'info', 'warning', 'error'"),
    ({"auto_create": "perhaps"}, "config/auto_create': got string, want boolean"),
    ({"traces": {"endpoint": "collector:4317"}}, "config/traces/endpoint': 'collector:4317' does not match"),
    ({"auth": {"tokens": [{"name": "etl"}]}}, "config/auth/tokens/0': missing property 'sha256'"),
    ({"auth": {"issuers": [{**ISSUER, "leeway_s": 301}]}}, "config/auth/issuers/0/leeway_s': maximum"),
    ({"auth": {"issuers": [{**ISSUER, "audience": 5}]}}, "config/auth/issuers/0/audience': got number"),
    (table(ttl=60), "config/tables/t': additional properties 'ttl' not allowed"),
    (table(cache={"ttl_s": 1}), "config/tables/t/cache': missing property 'records_max'"),
    (table(read={"attempts_max": 0}), "config/tables/t/read/attempts_max': minimum"),
    (table(key={}), "config/tables/t/key': minProperties"),
    (table(key={"id": "text"}), "config/tables/t/key/id': value must be one of"),
    ({"tables": {"t": {}}}, "config/tables/t': missing property 'store'"),
    ({"tables": {"a b": TABLE}}, "invalid propertyName 'a b'"),
    (store(kind="redis"), "config/stores/other': missing property 'url'"),
    (store(kind="memory", path="/data"), "config/stores/other': additional properties 'path' not allowed"),
    (store(kind="partitioned", partitions=[]), "config/stores/other/partitions': minItems"),
    (store(kind="postgres", dsn="${DSN}", connections_max=0), "config/stores/other/connections_max': minimum"),
    (store(url="redis://redis"), "config/stores/other': missing property 'kind'"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_helm_rejects_what_the_service_rejects(number: int) -> None:
    config, why = REFUSED[number]
    values = merged(REMOTE, {"config": config})
    with pytest.raises(helm_python.HelmError, match=re.escape(why)):
        render(values)
    with pytest.raises(SettingsError):
        validate(values["config"], ENVIRONMENT)


ENVIRONMENT = {
    "DSN": "postgresql://u:p@db/x",
    "FORMAT": "console",
    "KIND": "string",
    "LAYOUT": "columns",
    "NAME": "etl",
    "NUMBER": "5",
    "SHA": "1" * 64,
    "TRUE": "true",
    "URL": "https://issuer",
}

ACCEPTED: list[Values] = [
    {"limits": {"drain_s": "${NUMBER}", "in_flight_max": "${NUMBER}0"}, "logs": {"format": "${FORMAT}"}},
    {"limits": {"operations_max": "100", "drain_s": "0.5"}, "auto_create": "true"},
    {
        "auto_create": "${TRUE}",
        "default_store": "cache",
        "traces": {"endpoint": "${URL}"},
        "hosts": ["${NAME}.example"],
    },
    {"auth": {"tokens": [{"name": "${NAME}", "sha256": "${SHA}", "read": ["${NAME}*"]}]}},
    {"auth": {"issuers": [{**ISSUER, "issuer": "${URL}", "leeway_s": "${NUMBER}"}]}},
    {"auth": {"issuers": [{**ISSUER, "audience": ["a"], "rules": [{"claims": {"sub": ["a", "b*"]}}]}]}},
    table(ttl_s="${NUMBER}", name="${NAME}", key={"id": "${KIND}"}, prefix="x:", cache=None, limiter="cache"),
    table(read={"rate_per_s": "${NUMBER}", "backoff": "none"}, deadline_s=5, concurrency_max=5.0),
    store(kind="postgres", dsn="${DSN}", connections_max="${NUMBER}", schema="${NAME}")
    | {"tables": {"t": {"store": "other", "layout": "${LAYOUT}"}}},
]


@pytest.mark.parametrize("number", range(len(ACCEPTED)))
def test_helm_accepts_what_the_service_accepts(number: int, tmp_path: Path) -> None:
    values = merged(REMOTE, {"config": ACCEPTED[number]})
    file = tmp_path / "config.yaml"
    file.write_text(configuration(render(values)))
    assert load(file, ENVIRONMENT).stores


@pytest.mark.parametrize("kind", ["example", "${NAME}"])
def test_plug_ins_have_any_options_of_stores_and_tables(kind: str) -> None:
    config = merged(store(kind=kind, anything=[{"a": None}]), {"tables": {"t": {"store": "other", "shards": 5}}})
    assert "shards: 5" in configuration(render(merged(REMOTE, {"config": config})))
    config["tables"]["t"]["deadline_s"] = 0
    with pytest.raises(helm_python.HelmError, match="deadline_s"):
        render(merged(REMOTE, {"config": config}))
