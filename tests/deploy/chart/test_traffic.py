"""Network policies and routes: which peers may connect to the pods, and which peers the pods may connect to."""

from typing import Any

from deploy.chart.rendering import LOCAL, REMOTE, Object, Values, merged, only, render, service

POLICY: Values = {"networkPolicy": {"enabled": True}}


def ingress(values: Values) -> dict[str, Object]:
    """Return the NetworkPolicy's rules, by the port that each opens."""
    rules = only(render(merged(REMOTE, POLICY, values)), "NetworkPolicy")["spec"]["ingress"]
    return {port["port"]: rule for rule in rules for port in rule["ports"]}


def namespaces(rule: dict[str, Any]) -> list[str]:
    selectors = [peer["namespaceSelector"]["matchLabels"] for peer in rule["from"] if "namespaceSelector" in peer]
    return [one["kubernetes.io/metadata.name"] for one in selectors]


def test_pods_of_the_same_and_of_listed_namespaces_may_connect() -> None:
    assert {"podSelector": {}} in ingress({})["http"]["from"]
    assert namespaces(ingress({})["http"]) == []
    named = ingress({"networkPolicy": {"sameNamespace": False, "namespaces": ["spark", "edge"]}})["http"]
    assert {"podSelector": {}} not in named["from"]
    assert namespaces(named) == ["spark", "edge"]


def test_all_peers_may_connect_to_probes_unless_restricted() -> None:
    assert "from" not in ingress({})["probes"]
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert peer in ingress({"networkPolicy": {"monitoring": [peer]}})["probes"]["from"]


def test_the_test_pod_may_always_connect() -> None:
    narrow = {"networkPolicy": {"sameNamespace": False}}
    labels = only(render(merged(REMOTE, POLICY, narrow)), "Pod")["metadata"]["labels"]
    [peer] = ingress(narrow)["http"]["from"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()


def test_pods_with_restricted_egress_reach_only_dns_and_stores() -> None:
    assert only(render(merged(REMOTE, POLICY)), "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]
    store = {"to": [{"podSelector": {"matchLabels": {"app": "redis"}}}], "ports": [{"port": 6379, "protocol": "TCP"}]}
    values = {"networkPolicy": {"enabled": True, "egress": {"enabled": True, "rules": [store]}}}
    spec = only(render(merged(REMOTE, values)), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    [names, stores] = spec["egress"]
    assert namespaces({"from": names["to"]}) == ["kube-system"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert stores == store


def test_ingress_and_route_expose_only_the_tables() -> None:
    outside = {
        "ingress": {"enabled": True, "hosts": ["a.example"]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]},
    }
    objects = render(merged(REMOTE, outside))
    [rule] = only(objects, "Ingress")["spec"]["rules"]
    assert [(path["path"], path["pathType"]) for path in rule["http"]["paths"]] == [("/v1", "Prefix")]
    [route] = only(objects, "HTTPRoute")["spec"]["rules"]
    assert route["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]
    # A proxy decodes a path before it rewrites it. A key that contains a slash would become two path segments.
    assert "filters" not in route


def test_the_service_for_callers_states_its_protocol_and_does_not_expose_probes() -> None:
    tls = {"tls": {"enabled": True, "secretName": "certificate"}}
    for values, protocol in ((REMOTE, "http"), (merged(LOCAL, tls), "https")):
        [port] = service(render(values))["spec"]["ports"]
        assert (port["name"], port["appProtocol"]) == ("http", protocol)
