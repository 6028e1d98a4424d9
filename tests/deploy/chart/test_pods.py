"""The commands of the chart's pods run as local processes: the service, and the requests of `helm test`."""

import hashlib
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from deploy.chart.pods import TOKEN, TOKENS, Pod, moved, placed, probe, started
from deploy.chart.rendering import BACKUP, LOCAL, REMOTE, Values, all_of, backup_pods, merged
from support.certificates import Authority
from support.waiting import until

pytestmark = [pytest.mark.daily, pytest.mark.server]

GUARDED: Values = {
    "insecure": False,
    "config": {"auth": {"tokens_file": "/etc/tableside-secrets/tokens/tokens.yaml"}},
    "secrets": {"files": {"tokens": {"secretName": "tokens"}}},
    "tests": {"token": {"secretName": "test", "key": "token"}, "get": {"table": "t", "key": "a/b ü"}},
}


def helm_test(there: Pod, **secrets: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the `helm test` pod with these secrets against the local pod."""
    [pod] = all_of(there.objects, "Pod")
    [mine] = pod["spec"]["containers"]
    environment = {one["name"]: one.get("value") or secrets[one["name"]] for one in mine["env"]}
    environment["URL"] = there.http
    environment |= {"CA": moved(environment["CA"], there.root)} if "CA" in environment else {}
    assert mine["command"] == ["python3", "-c"]
    return subprocess.run(
        [sys.executable, "-c", *mine["args"]],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_pod_with_tokens_requires_one_and_helm_test_sends_it(tmp_path: Path) -> None:
    values = merged(LOCAL, GUARDED)
    with started(values, tmp_path) as there:
        assert [probe(there, kind) for kind in ("readiness", "liveness")] == [200, 200]
        assert httpx.get(f"{there.http}/v1/tables").status_code == 401
        record, bearer = f"{there.http}/v1/tables/t/records/a%2Fb%20%C3%BC", {"Authorization": f"Bearer {TOKEN}"}

        absent = helm_test(there, TABLESIDE_TOKEN=TOKEN)
        assert absent.returncode == 1
        assert "404" in absent.stdout
        assert httpx.put(record, json={"n": 1}, headers=bearer).status_code == 204
        asked = helm_test(there, TABLESIDE_TOKEN=TOKEN)
        assert asked.returncode == 0, asked.stdout
        assert asked.stdout == ("/readyz: fine\n/v1/tables: fine\n/v1/tables/t/records/a%2Fb%20%C3%BC: fine\n")
        refused = helm_test(there, TABLESIDE_TOKEN="another")
        assert refused.returncode == 1
        assert "401" in refused.stdout
        assert "another" not in refused.stdout + refused.stderr

        assert httpx.get(f"{there.probes}/metrics").status_code == 200
        assert httpx.get(f"{there.probes}/v1/tables", headers=bearer).status_code == 404

    with started(merged(values, {"restartOnConfigChange": False}), tmp_path) as there:
        assert httpx.get(record.replace(record.split("/v1")[0], there.http), headers=bearer).json() == {"n": 1}
        check_that_a_change_is_applied_without_a_restart(there)


def check_that_a_change_is_applied_without_a_restart(there: Pod) -> None:
    other = "another-0123456789"
    more = TOKENS + TOKENS.replace("name: test", "name: other").replace(
        hashlib.sha256(TOKEN.encode()).hexdigest(), hashlib.sha256(other.encode()).hexdigest()
    )
    headers = {"Authorization": f"Bearer {other}"}
    assert httpx.get(f"{there.http}/v1/tables", headers=headers).status_code == 401
    placed("/etc/tableside-secrets/tokens/tokens.yaml", there.root).write_text(more)
    until(lambda: httpx.get(f"{there.http}/v1/tables", headers=headers).status_code == 200)


def test_a_pod_for_backups_reads_the_store_of_the_service(tmp_path: Path) -> None:
    with started(BACKUP, tmp_path) as there:
        assert httpx.put(f"{there.http}/v1/tables/t/records/a", json={"n": 1}).status_code == 204
        [template] = backup_pods(there.objects)
        [mine] = template["spec"]["containers"]
        command = [sys.executable, "-m", "tableside", *(moved(argument, tmp_path) for argument in mine["args"])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{tmp_path}/backups/2")


def test_a_pod_with_an_unreachable_store_is_live_but_not_ready(tmp_path: Path) -> None:
    away = merged(REMOTE, {"config": {"stores": {"cache": {"url": "redis://127.0.0.1:1/0"}}}})
    with started(away, tmp_path) as there:
        assert [probe(there, kind) for kind in ("startup", "liveness", "readiness")] == [200, 200, 503]
        asked = helm_test(there)
        assert asked.returncode == 1
        assert asked.stdout.startswith("/readyz: 503")


def certified(root: Path) -> Authority:
    """Write a certificate to the pod's folder like cert-manager, and return the authority that signed it."""
    authority = Authority(root / "authority")
    signed = authority.sign("service")
    folder = placed("/etc/tableside-tls", root)
    folder.mkdir(parents=True)
    for file, name in ((signed.certificate, "tls.crt"), (signed.key, "tls.key"), (authority.certificate, "ca.crt")):
        shutil.copy(file, folder / name)
    return authority


def test_a_pod_with_a_certificate_serves_tls_and_plain_probes(tmp_path: Path) -> None:
    authority = certified(tmp_path)
    values = merged(LOCAL, {"tls": {"enabled": True, "secretName": "certificate"}})
    with started(values, tmp_path) as there:
        assert [probe(there, kind) for kind in ("readiness", "liveness")] == [200, 200]
        assert httpx.get(f"{there.http}/readyz", verify=authority.trusting()).status_code == 200
        assert helm_test(there).returncode == 0
        placed("/etc/tableside-tls/ca.crt", tmp_path).unlink()
        distrusting = helm_test(there)
        assert distrusting.returncode == 1
        assert "CERTIFICATE_VERIFY_FAILED" in distrusting.stdout


def test_a_pod_with_a_client_authority_rejects_clients_without_certificate(tmp_path: Path) -> None:
    authority = certified(tmp_path)
    placed("/etc/tableside-client-ca", tmp_path).mkdir()
    shutil.copy(authority.certificate, placed("/etc/tableside-client-ca/ca.crt", tmp_path))
    tls = {"enabled": True, "secretName": "certificate", "clientCa": {"secretName": "authority"}}
    with started(merged(LOCAL, {"tls": tls}), tmp_path) as there:
        assert [probe(there, kind) for kind in ("readiness", "liveness")] == [200, 200]
        assert all_of(there.objects, "Pod") == []
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            httpx.get(f"{there.http}/readyz", verify=authority.trusting())
        known = authority.trusting(authority.sign("caller"))
        assert httpx.get(f"{there.http}/readyz", verify=known).status_code == 200
