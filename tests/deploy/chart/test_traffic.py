"""Who reaches the pods, by which way, and whom they reach."""

from typing import Any

from deploy.chart.rendering import LOCAL, REMOTE, Object, Values, all_of, merged, only, render, service

POLICY: Values = {"networkPolicy": {"enabled": True}}


def ingress(values: Values) -> dict[str, Object]:
    """Return the rules of the NetworkPolicy by the port that they open."""
    rules = only(render(merged(REMOTE, POLICY, values)), "NetworkPolicy")["spec"]["ingress"]
    return {port["port"]: rule for rule in rules for port in rule["ports"]}


def namespaces(rule: dict[str, Any]) -> list[str]:
    selectors = [peer["namespaceSelector"]["matchLabels"] for peer in rule["from"] if "namespaceSelector" in peer]
    return [one["kubernetes.io/metadata.name"] for one in selectors]


def test_callers_are_of_the_same_namespace_and_of_those_that_are_named() -> None:
    assert {"podSelector": {}} in ingress({})["http"]["from"]
    assert namespaces(ingress({})["http"]) == []
    named = ingress({"networkPolicy": {"sameNamespace": False, "namespaces": ["spark", "edge"]}})["http"]
    assert {"podSelector": {}} not in named["from"]
    assert namespaces(named) == ["spark", "edge"]


def test_probes_are_for_anybody_unless_somebody_is_named() -> None:
    assert "from" not in ingress({})["probes"]
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert peer in ingress({"networkPolicy": {"monitoring": [peer]}})["probes"]["from"]


def test_nobody_is_let_in_by_an_empty_list_of_peers() -> None:
    alone = ingress({"networkPolicy": {"sameNamespace": False}})["http"]
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in alone["from"]] == [
        "tableside-test"
    ]


def test_helm_test_is_let_in_always() -> None:
    narrow = {"networkPolicy": {"sameNamespace": False}}
    labels = only(render(merged(REMOTE, POLICY, narrow)), "Pod")["metadata"]["labels"]
    [peer] = ingress(narrow)["http"]["from"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()


def test_what_the_pods_reach_is_free_unless_it_is_said() -> None:
    free = only(render(merged(REMOTE, POLICY)), "NetworkPolicy")["spec"]
    assert free["policyTypes"] == ["Ingress"]
    assert "egress" not in free


def test_pods_that_are_restricted_reach_names_and_stores_and_nothing_else() -> None:
    store = {"to": [{"podSelector": {"matchLabels": {"app": "redis"}}}], "ports": [{"port": 6379, "protocol": "TCP"}]}
    values = {"networkPolicy": {"enabled": True, "egress": {"enabled": True, "rules": [store]}}}
    spec = only(render(merged(REMOTE, values)), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    [names, stores] = spec["egress"]
    assert namespaces({"from": names["to"]}) == ["kube-system"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert stores == store


def test_from_outside_only_the_tables_are_reached() -> None:
    outside = {
        "ingress": {"enabled": True, "hosts": ["a.example"]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]},
    }
    objects = render(merged(REMOTE, outside))
    [rule] = only(objects, "Ingress")["spec"]["rules"]
    assert [(path["path"], path["pathType"]) for path in rule["http"]["paths"]] == [("/v1", "Prefix")]
    [route] = only(objects, "HTTPRoute")["spec"]["rules"]
    assert route["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]


def test_no_path_is_rewritten_on_the_way() -> None:
    # Whoever rewrites a path decodes it first, and a key with a slash in it becomes two.
    objects = render(merged(REMOTE, {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]}}))
    assert all("filters" not in rule for rule in only(objects, "HTTPRoute")["spec"]["rules"])


def test_the_service_says_by_which_protocol_it_is_asked() -> None:
    tls = {"tls": {"enabled": True, "secretName": "certificate"}}
    assert service(render(REMOTE))["spec"]["ports"][0]["appProtocol"] == "http"
    assert service(render(merged(REMOTE, tls)))["spec"]["ports"][0]["appProtocol"] == "https"


def test_callers_are_not_offered_the_port_of_probes() -> None:
    assert [port["name"] for port in service(render(LOCAL))["spec"]["ports"]] == ["http"]
    assert len(all_of(render(LOCAL), "Service")) == 2
