"""The dashboard shows exactly the service's metrics, in valid PromQL."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from scripts.bootstrap import ROOT
from servers.promtool import promtool
from support.running import running

DASHBOARD: dict[str, Any] = json.loads((ROOT / "helm" / "dashboards" / "tableside.json").read_text(encoding="utf-8"))
RULES = (ROOT / "helm" / "rules" / "tableside.yaml").read_text(encoding="utf-8")

CONFIG = """
stores:
  local: {kind: memory}
  gone: {kind: redis, url: "redis://127.0.0.1:1/0"}
tables:
  t: {store: local}
  r: {store: gone}
"""


NAME = re.compile(r"\b((?:tableside|process|python)_[a-z_]+)\b")
ADDED = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum"), "unknown": ("",)}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Return every expression of the dashboard, by its panel and letter."""
    return {
        f"{panel['title']} {panel['id']} {target['refId']}": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }


def queries() -> list[str]:
    return [one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The types of a running service's metrics by name, including metrics without samples."""
    directory = tmp_path_factory.mktemp("dashboard")
    config = directory / "tableside.yaml"
    config.write_text(CONFIG)
    with running(directory, config) as service:
        text = httpx.get(f"{service.url}/metrics").text
    found = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    return {name: kind for name, kind in found.items() if not name.endswith("_created")}


def test_every_expression_and_alert_uses_existing_metrics(families: dict[str, str]) -> None:
    there = {name + added for name, kind in families.items() for added in ADDED[kind]}
    alerts = [rule["expr"] for rule in yaml.safe_load(RULES)["groups"][0]["rules"]]
    assert alerts
    asked = {name for text in (*expressions().values(), *queries(), *alerts) for name in NAME.findall(text)}
    assert asked - there == set()


def test_every_metric_of_the_service_is_shown(families: dict[str, str]) -> None:
    shown = {name for text in expressions().values() for name in NAME.findall(text)}
    ours = {name: kind for name, kind in families.items() if name.startswith("tableside_")}
    missing = {name for name, kind in ours.items() if shown.isdisjoint(name + added for added in ADDED[kind])}
    assert missing == set()


def test_prometheus_accepts_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(expressions().values())
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout
    assert f"{len(rules)} rules found" in done.stdout


def test_every_expression_filters_by_the_selected_variables() -> None:
    for place, text in expressions().items():
        for selector in re.findall(r"(?:tableside|process)_[a-z_]+(\{[^}]*\})?", text):
            assert 'job=~"$job", instance=~"$instance"' in selector, place
        if re.search(r"\bby \([^)]*\btable\b", text):
            assert text.count('table=~"$table"') >= 1, place


def test_every_panel_uses_the_selected_source_and_has_a_unit_and_a_separate_place() -> None:
    places: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & places, panel["title"]
        places |= own
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers)


def test_the_panels_that_the_runbook_names_exist() -> None:
    runbook = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<!\*)\*([A-Z][^*.]+)\*(?!\*)", runbook))
    assert len(named) >= 5
    assert named <= {panel["title"] for panel in panels()}
