"""A real service with issuers: tokens like those of Kubernetes, and changes of the configuration."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from scripts.bootstrap import ROOT
from support.issuing import Issuer, SigningKey, claims, issuing
from support.running import Service, running
from support.waiting import until
from tableside.auth import AuthSettings
from tableside.auth.signed_tokens import ClaimRules
from tableside.settings import validate

pytestmark = pytest.mark.server
RECORD = "/v1/tables/t/records/a"
KUBERNETES = "https://kubernetes.default.svc.cluster.local"
DOCUMENTATION = ROOT / "docs"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as started:
        yield started


def configured(directory: Path, *issuers: dict[str, Any], **auth: Any) -> Path:
    """Write a configuration atomically, and return its file."""
    file, data = directory / "tableside.yaml", {"stores": {"s": {"kind": "memory"}}, "tables": {"t": {"store": "s"}}}
    new = file.with_suffix(".new")
    new.write_text(
        json.dumps({**data, "auth": {"issuers": issuers, **auth}, "logs": {"level": "debug", "requests": 1}})
    )
    new.replace(file)
    return file


def status(service: Service, token: str, method: str = "GET", path: str = RECORD) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    content = b"{}" if method == "PUT" else None
    return httpx.request(method, service.url + path, headers=headers, content=content, timeout=30).status_code


def metric(service: Service, name: str, **labels: str) -> float | None:
    text = httpx.get(f"{service.url}/metrics", timeout=30).text
    given = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
    found = re.search(rf"^{re.escape(f'{name}{{{given}}}')} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


def reload(service: Service) -> None:
    applied = metric(service, "tableside_settings_reloads_total", outcome="applied") or 0
    os.kill(service.pid, signal.SIGHUP)
    until(lambda: (metric(service, "tableside_settings_reloads_total", outcome="applied") or 0) > applied)


def service_account(namespace: str, name: str, pod: str = "etl-1", **more: Any) -> dict[str, Any]:
    """Return the claims of the token of a projected service account."""
    within = {"namespace": namespace, "pod": {"name": pod, "uid": "1"}, "serviceaccount": {"name": name, "uid": "2"}}
    subject = f"system:serviceaccount:{namespace}:{name}"
    return claims(KUBERNETES, aud=["tableside"], sub=subject, nbf=int(time.time()), **{"kubernetes.io": within}, **more)


def test_tokens_of_kubernetes_service_accounts_are_accepted(issuer: Issuer, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("the-services-own")
    rules = [
        {"claims": {"sub": "system:serviceaccount:jobs:*"}, "read": ["*"]},
        {"claims": {"/kubernetes.io/namespace": "jobs", "/kubernetes.io/serviceaccount/name": "etl"}, "write": ["t"]},
    ]
    entry = issuer.settings(*rules, issuer=KUBERNETES, token_file=str(token_file))
    with running(tmp_path, configured(tmp_path, entry)) as service:
        etl, reader, other = (
            issuer.key.signed(service_account(namespace, name))
            for namespace, name in (("jobs", "etl"), ("jobs", "report"), ("web", "etl"))
        )
        assert [status(service, token, "PUT") for token in (etl, reader, other)] == [204, 403, 403]
        assert [status(service, token) for token in (etl, reader, other)] == [200, 200, 403]
        wrong = issuer.key.signed({**service_account("jobs", "etl"), "aud": [KUBERNETES]})
        assert status(service, wrong) == 401
        assert {headers["authorization"] for _, headers in issuer.asked} == {"Bearer the-services-own"}
        logged = service.log.read_text()
        assert f"{KUBERNETES}#system:serviceaccount:jobs:etl" in logged
        told = logged + httpx.get(f"{service.url}/metrics").text
        parts = [part for token in (etl, reader, other, wrong) for part in token.split(".")[1:]]
        assert not [part for part in [*parts, "the-services-own", "etl-1"] if part in told]
        assert metric(service, "tableside_unauthenticated_total", reason="audience") == 1
        assert metric(service, "tableside_issuer_keys", issuer=KUBERNETES) == 1


def test_issuers_and_their_rules_change_while_it_serves(issuer: Issuer, tmp_path: Path) -> None:
    with issuing(SigningKey("second")) as second:
        config = configured(tmp_path, issuer.settings())
        with running(tmp_path, config) as service:
            first_token, second_token = issuer.token(), second.token()
            assert [status(service, first_token), status(service, first_token, "PUT")] == [404, 403]
            assert status(service, second_token) == 401

            configured(
                tmp_path, issuer.settings({"claims": {"sub": "*"}, "read": ["t"], "write": ["t"]}), second.settings()
            )
            fetches = issuer.fetches
            reload(service)
            assert [status(service, first_token, "PUT"), status(service, second_token)] == [204, 200]
            assert (issuer.fetches, second.fetches) == (fetches, 1)

            configured(tmp_path, second.settings())
            reload(service)
            assert [status(service, first_token), status(service, second_token)] == [401, 200]
            shown = metric(service, "tableside_issuer_keys", issuer=issuer.url)
            assert shown is None or shown != shown  # true only of NaN

            configured(tmp_path, {**second.settings(), "algorithms": ["HS256"]})
            os.kill(service.pid, signal.SIGHUP)
            until(lambda: metric(service, "tableside_settings_reloads_total", outcome="refused") == 1)
            assert status(service, second_token) == 200

            second.away = True
            configured(tmp_path, second.settings(refresh_s=10), {**issuer.settings(), "audience": "other"})
            reload(service)
            assert [status(service, second_token), status(service, first_token)] == [200, 401]
            assert status(service, issuer.token(aud="other")) == 200


def test_keys_are_fetched_when_their_issuer_recovers(issuer: Issuer, tmp_path: Path) -> None:
    issuer.away = True
    config = configured(tmp_path, issuer.settings(jwks_url=None), metrics="open")
    with running(tmp_path, config) as service:
        token = issuer.token()
        until(lambda: (metric(service, "tableside_issuer_fetches_total", issuer=issuer.url, outcome="failed") or 0) > 0)
        assert status(service, token) == 503
        assert metric(service, "tableside_unauthenticated_total", reason="unavailable") == 1
        issuer.away = False
        until(lambda: status(service, token) == 404)
        assert metric(service, "tableside_issuer_fetches_total", issuer=issuer.url, outcome="fetched") == 1
        assert "cannot be fetched" in service.log.read_text()


def examples(containing: str) -> list[Any]:
    """Return the YAML blocks of the page about security that contain this text."""
    text = (DOCUMENTATION / "security.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]
    return [yaml.safe_load(block) for block in blocks if containing in block]


def test_the_documented_issuers_grant_the_documented_permissions() -> None:
    first, kubernetes = (validate(example).auth for example in examples("issuers:"))
    assert first is not None
    assert kubernetes is not None

    def given(auth: AuthSettings, **claimed: Any) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        found = ClaimRules(auth.issuers[0]).apply({"sub": "s", **claimed}, 0)
        assert found is not None
        return found.read, found.write, found.admin

    assert given(first, groups=["analysts"]) == (("*",), (), False)
    assert given(first, groups=["etl-eu"], azp="airflow") == (("*",), ("aircraft", "profile*"), False)
    assert given(first, groups=["etl-eu"], azp="other") == ((), (), False)
    assert given(first, **{"https://example.com/roles": ["operator"]}) == ((), (), True)
    assert given(kubernetes, **service_account("jobs", "etl")) == (("*",), ("aircraft",), False)
    assert given(kubernetes, **service_account("web", "etl")) == ((), (), False)


def test_the_manifests_of_the_documentation_are_valid() -> None:
    validating = pytest.importorskip("kubernetes_validate", reason="needs the dependency group chart")
    manifests = examples("apiVersion:")
    assert [manifest["kind"] for manifest in manifests] == ["Pod", "ClusterRoleBinding"]
    for manifest in manifests:
        validating.validate(manifest, "1.30", strict=True)
    [source] = manifests[0]["spec"]["volumes"][0]["projected"]["sources"]
    [issuer] = examples("jwks_url:")[0]["auth"]["issuers"]
    assert source["serviceAccountToken"]["audience"] == issuer["audience"]
