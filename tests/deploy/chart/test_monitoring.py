"""The configuration for Prometheus, Grafana and the autoscaler matches the service's metrics."""

import json
import re

import pytest
import yaml

from deploy.chart.rendering import CHART, REMOTE, Values, all_of, merged, only, render
from scripts.bootstrap import ROOT

pytestmark = pytest.mark.chart

WATCHED: Values = {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")}


def test_the_rules_equal_the_tested_ones() -> None:
    spec = only(render(merged(REMOTE, WATCHED)), "PrometheusRule")["spec"]
    assert spec == yaml.safe_load((CHART / "rules" / "tableside.yaml").read_text(encoding="utf-8"))


def test_each_alert_links_its_section_of_the_published_page() -> None:
    page = "https://docs.example/tableside/alerts.html"
    values = merged(REMOTE, {"prometheusRule": {"enabled": True, "runbookUrl": page}})
    [group] = only(render(values), "PrometheusRule")["spec"]["groups"]
    for rule in group["rules"]:
        assert rule["annotations"]["runbook_url"] == f"{page}#{rule['alert'].lower()}"


def test_the_job_label_is_the_name_of_the_release() -> None:
    objects = render(merged(REMOTE, WATCHED), release="orders")
    monitor = only(objects, "ServiceMonitor")["spec"]
    [found] = [one for one in all_of(objects, "Service") if one["spec"].get("clusterIP") == "None"]
    assert found["metadata"]["labels"][monitor["jobLabel"]] == "orders"
    assert monitor["namespaceSelector"] == {"matchNames": ["tables"]}


def test_prometheus_sends_an_admin_token() -> None:
    token = {"serviceMonitor": {"enabled": True, "bearerToken": {"secretName": "admin", "key": "token"}}}
    [end] = only(render(merged(REMOTE, token)), "ServiceMonitor")["spec"]["endpoints"]
    assert end["authorization"] == {"type": "Bearer", "credentials": {"name": "admin", "key": "token"}}
    assert end["path"] == "/metrics"


def test_the_dashboard_is_complete_and_labeled_for_the_sidecar() -> None:
    [found] = [one for one in all_of(render(merged(REMOTE, WATCHED)), "ConfigMap") if "tableside.json" in one["data"]]
    text = (CHART / "dashboards" / "tableside.json").read_text(encoding="utf-8")
    assert json.loads(found["data"]["tableside.json"]) == json.loads(text)
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert len(found["data"]["tableside.json"]) < 2**20


def test_the_autoscaler_uses_an_existing_metric() -> None:
    values = {"autoscaling": {"enabled": True, "inFlightRequests": 50}}
    [cpu, pods] = only(render(merged(REMOTE, values)), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert cpu["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
    metric = pods["pods"]["metric"]
    assert metric == {"name": "tableside_in_flight", "selector": {"matchLabels": {"what": "requests"}}}
    assert pods["pods"]["target"] == {"type": "AverageValue", "averageValue": "50"}
    documented = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    assert re.search(r"^\| `tableside_in_flight` \| `what` \| `requests`", documented, re.MULTILINE)
