"""The alert rules: each fires only when it should, links the remedy, and uses existing metrics."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.bootstrap import ROOT
from servers.promtool import promtool

RULES = ROOT / "helm" / "rules" / "tableside.yaml"
RUNBOOK = ROOT / "docs" / "alerts.md"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
}

WHERE = {"job": "tableside", "instance": "a:8080"}
TABLE = {"job": "tableside", "table": "t"}

Series = dict[str, str]


def series(name: str, **labels: str) -> str:
    return name + "{" + ",".join(f'{label}="{text}"' for label, text in {**WHERE, **labels}.items()) + "}"


def operations(outcome: str, values: str, table: str = "t") -> Series:
    return {series("tableside_operations_total", table=table, operation="get", outcome=outcome): values}


def durations(**upto: str) -> Series:
    """Return a histogram of a table. The arguments are bounds: le_0_5 is 0.5."""
    labels = {"table": "t", "operation": "get", "outcome": "found"}
    bounds = {name.removeprefix("le_").replace("_", ".").replace("inf", "+Inf"): of for name, of in upto.items()}
    return {series("tableside_operation_duration_seconds_bucket", le=le, **labels): of for le, of in bounds.items()}


def readyz(status: str, values: str) -> Series:
    return {series("tableside_http_requests_total", route="/readyz", method="GET", status=status): values}


def scrapes(values: str) -> Series:
    return {series("tableside_http_requests_total", route="/metrics", method="GET", status="200"): values}


def connections(in_use: str, most: str = "20x60") -> Series:
    return {
        series("tableside_store_connections", store="orders", state="in_use"): in_use,
        series("tableside_store_connections", store="orders", state="most"): most,
    }


def disk(free: str) -> Series:
    name = "tableside_store_disk_bytes"
    return {
        series(name, store="local", state="free"): free,
        series(name, store="local", state="size"): "100x60",
        series(name, store="other", state="free"): "90x60",
        series(name, store="other", state="size"): "100x60",
    }


def of_caller(rejected: str) -> Series:
    return {
        series("tableside_caller_operations_total", caller="loud"): "0+600x60",
        series("tableside_caller_rejected_total", caller="loud", code="throttled"): rejected,
    }


def loading(seconds: str) -> Series:
    return {series("tableside_generation_loading_seconds", table="t"): seconds}


def generations(state: str, count: str) -> Series:
    return {series("tableside_generations", table="t", state=state): count}


def fetches(failed: str, fetched: str) -> Series:
    name, issuer = "tableside_issuer_fetches_total", "https://id.example"
    return {
        series(name, issuer=issuer, outcome="failed"): failed,
        series(name, issuer=issuer, outcome="fetched"): fetched,
    }


UP, BUILT = series("up"), series("tableside_build_info", version="1")
STARTED = series("process_start_time_seconds")

FIRES: list[tuple[str, Series, int, dict[str, str]]] = [
    ("TablesideDown", {UP: "1x10 0x50", BUILT: "1x10 _x50"}, 13, WHERE),
    ("TablesideGone", {BUILT: "1x10 stale"}, 17, {}),
    ("TablesideNoStoreReachable", readyz("503", "0+12x60"), 5, WHERE),
    ("TablesideNoStoreReachable", readyz("200", "0+12x10 120x60") | readyz("503", "0x10 0+12x60"), 16, WHERE),
    ("TablesideFailures", operations("found", "0+600x60") | operations("store_unavailable", "0+60x60"), 12, TABLE),
    ("TablesideFailures", operations("deadline_exceeded", "0+1x60"), 12, TABLE),
    ("TablesideSlow", durations(le_1_0="0+90x60", le_2_5="0+100x60", le_inf="0+100x60"), 20, TABLE),
    ("TablesideThrottled", operations("written", "0+600x60") | operations("throttled", "0+12x60"), 20, TABLE),
    ("TablesideCallerRejected", of_caller("0+12x60"), 20, {"job": "tableside", "caller": "loud"}),
    (
        "TablesideSheds",
        {series("tableside_shed_total", reason="requests"): "0+5x60"},
        12,
        {**WHERE, "reason": "requests"},
    ),
    (
        "TablesideRetryBudgetExhausted",
        {series("tableside_retries_given_up_total", table="t", direction="read", reason="budget"): "0+5x60"},
        12,
        TABLE,
    ),
    (
        "TablesideLimiterUnreachable",
        {series("tableside_rate_limit_fallbacks_total", table="t", direction="read"): "0+1x60"},
        12,
        {**WHERE, "table": "t"},
    ),
    ("TablesideStorePoolExhausted", connections("19x60"), 6, {**WHERE, "store": "orders"}),
    ("TablesideDiskFull", disk("20x9 14x60"), 16, {**WHERE, "store": "local"}),
    (
        "TablesideIssuerUnreachable",
        fetches(failed="0x5 0+1x60", fetched="1x60"),
        24,
        {**WHERE, "issuer": "https://id.example"},
    ),
    ("TablesideReloadRefused", {series("tableside_settings_current"): "1x5 0x60"}, 40, WHERE),
    ("TablesideGenerationLoads", loading("21000+60x60"), 25, TABLE),
    ("TablesideGenerationStays", generations("removed", "0x5 1x90"), 70, TABLE),
    ("TablesideRestarts", {STARTED: "1x5 301x5 601x5 901x60", BUILT: "1x60"}, 25, WHERE),
    ("TablesideRestarts", scrapes("0+1x5 0+1x5 0+1x5 0+1x60"), 25, WHERE),
]
"""An alert, the samples that Prometheus scraped each minute, the minute when it fires, and its labels."""

STAYS_QUIET: list[tuple[str, Series, int]] = [
    ("TablesideDown", {UP: "1x10 0x1 1x50", BUILT: "1x60"}, 12),  # one scrape failed
    ("TablesideGone", {BUILT: "1x10 _x3 1x50"}, 14),
    ("TablesideNoStoreReachable", readyz("200", "0+6x60") | readyz("503", "0+6x60"), 30),
    ("TablesideNoStoreReachable", readyz("503", "0+12x1 12x60") | readyz("200", "0x1 0+12x60"), 3),  # just started
    ("TablesideFailures", operations("found", "0+600x60") | operations("store_unavailable", "0+20x60"), 30),
    ("TablesideFailures", operations("found", "0x60") | operations("internal", "5x60"), 30),  # the failures are too old
    ("TablesideFailures", operations("found", "0+600x60") | operations("overloaded", "0x10 0+300x3 900x60"), 13),
    ("TablesideSlow", durations(le_1_0="0+995x60", le_2_5="0+1000x60", le_inf="0+1000x60"), 30),
    ("TablesideThrottled", operations("written", "0+600x60") | operations("throttled", "0+5x60"), 30),
    ("TablesideCallerRejected", of_caller("0+5x60"), 30),
    ("TablesideSheds", {series("tableside_shed_total", reason="requests"): "7x60"}, 30),
    (
        "TablesideRetryBudgetExhausted",
        {series("tableside_retries_given_up_total", table="t", direction="read", reason="attempts"): "0+5x60"},
        30,
    ),
    (
        "TablesideLimiterUnreachable",
        {series("tableside_rate_limit_fallbacks_total", table="t", direction="read"): "3x60"},
        30,
    ),
    ("TablesideStorePoolExhausted", connections("0x60", most="0x60"), 30),
    ("TablesideDiskFull", disk("15x60"), 30),
    ("TablesideIssuerUnreachable", fetches(failed="0+1x60", fetched="0+1x60"), 40),
    ("TablesideIssuerUnreachable", fetches(failed="0x5 0+1x3 3x60", fetched="1x60"), 26),  # no more fetches
    ("TablesideReloadRefused", {series("tableside_settings_current"): "1x5 0x5 1x60"}, 30),
    ("TablesideGenerationLoads", loading("21000+60x15 0x60"), 30),
    ("TablesideGenerationStays", generations("removed", "0x5 1x30 0x60"), 70),
    ("TablesideRestarts", {STARTED: "1x15 901x60", BUILT: "1x60"}, 40),  # a new version
    ("TablesideRestarts", {STARTED.replace("a:8080", "b:1"): "1x5 301x5 601x5 901x60", BUILT: "1x60"}, 25),  # other job
]


def case(alert: str, seen: Series, minute: int, fires: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a case for promtool: exactly these alerts with this name fire at this minute."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in seen.items()],
        "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": fires}],
    }


def check(folder: Path, cases: list[dict[str, Any]], rules: Path = RULES) -> subprocess.CompletedProcess[str]:
    """Check all cases in one run of promtool. It names the alert and the minute of each failed case."""
    file = folder / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": cases}))
    return promtool("test", "rules", file)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules without their annotations: promtool would also compare the numbers in them."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(json.dumps(rules))
    return file


def firing(alert: str, labels: dict[str, str]) -> list[dict[str, Any]]:
    return [{"exp_labels": {"severity": ALERTS[alert]["labels"]["severity"], **labels}}]


def test_each_alert_fires_when_it_should(bare: Path, tmp_path: Path) -> None:
    cases = [case(alert, seen, minute, firing(alert, labels)) for alert, seen, minute, labels in FIRES]
    done = check(tmp_path, cases, bare)
    assert done.returncode == 0, done.stdout


def test_no_alert_fires_otherwise(tmp_path: Path) -> None:
    done = check(tmp_path, [case(alert, seen, minute, []) for alert, seen, minute in STAYS_QUIET])
    assert done.returncode == 0, done.stdout


def test_the_annotations_of_an_alert_contain_its_numbers(tmp_path: Path) -> None:
    said = {
        "summary": "Operations on the table t fail",
        "description": "9.091% of the operations on t (tableside) failed in the last 5 minutes.",
        "runbook_url": "docs/alerts.md#tablesidefailures",
    }
    seen = operations("found", "0+600x60") | operations("store_unavailable", "0+60x60")
    labels = {"severity": "critical", "job": "tableside", "table": "t"}
    done = check(tmp_path, [case("TablesideFailures", seen, 12, [{"exp_labels": labels, "exp_annotations": said}])])
    assert done.returncode == 0, done.stdout


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert {alert for alert, *_ in FIRES} == ALERTS.keys()
    assert {alert for alert, *_ in STAYS_QUIET} == ALERTS.keys()


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_has_a_severity_a_description_and_a_runbook(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    headings = re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]
