"""Keys, prefixes of paths and etags behind nginx with the settings of ingress controllers."""

import re
from collections.abc import Iterator

import httpx
import pytest

from servers.nginx import nginx
from support.running import Service, running as running_service

pytestmark = [pytest.mark.daily, pytest.mark.server]

KEYS = ["a%2Fb", "%2F", "a%2F%2Fb", "50%25", "a%3Fb%23c%3Bd", "%C3%BC%20x", "a%5Cb", "a+b"]


@pytest.fixture(scope="module")
def proxy(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with nginx(tmp_path_factory.mktemp("nginx"), service.url) as url:
        yield url


@pytest.mark.parametrize("key", KEYS)
def test_a_key_arrives_unchanged(proxy: str, service: Service, key: str) -> None:
    assert httpx.put(f"{proxy}/v1/tables/proxied/records/{key}", json={"key": key}).status_code == 204
    assert httpx.get(f"{service.url}/v1/tables/proxied/records/{key}").json() == {"key": key}
    assert httpx.get(f"{proxy}/v1/tables/proxied/records/{key}").json() == {"key": key}


def test_rewriting_a_path_changes_its_key(proxy: str, service: Service) -> None:
    assert httpx.put(f"{service.url}/v1/tables/proxied/records/c%2Fd", json={}).status_code == 204
    answer = httpx.get(f"{proxy}/rewritten/v1/tables/proxied/records/c%2Fd")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_operation")
    assert "a proxy has decoded it: send the key in a batch" in answer.json()["detail"]


def test_a_batch_with_unusual_keys_passes(proxy: str) -> None:
    operations = [{"op": "put", "key": key, "value": {"n": 1}} for key in ("a/b", "..", ".", "50%")]
    for path in ("/v1", "/rewritten/v1"):
        answer = httpx.post(f"{proxy}{path}/tables/proxied/batch", json={"operations": operations})
        assert [one["status"] for one in answer.json()["results"]] == [204] * 4


def test_compression_makes_an_etag_weak_and_the_error_says_so(proxy: str) -> None:
    record = f"{proxy}/compressed/v1/tables/proxied/records/weak"
    etag = httpx.put(record, json={"text": "x" * 100}).headers["ETag"]
    weak = httpx.get(record).headers["ETag"]
    assert weak == f"W/{etag}"
    assert httpx.get(record, headers={"If-None-Match": weak}).status_code == 304
    answer = httpx.put(record, json={}, headers={"If-Match": weak})
    assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed")
    assert "a weak etag (W/)" in answer.json()["detail"]
    strong = httpx.get(record, headers={"Accept-Encoding": "identity"}).headers["ETag"]
    assert httpx.put(record, json={}, headers={"If-Match": strong}).status_code == 204


PREFIXED = """
stores: {local: {kind: memory}}
auto_create: true
root_path: /outer/tables
trusted_proxies: [127.0.0.1]
"""


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A proxy that passes the prefix `/outer/tables` to the service, and removes the prefix `/removed`."""
    directory = tmp_path_factory.mktemp("prefixed")
    config = directory / "tableside.yaml"
    config.write_text(PREFIXED)
    with running_service(directory, config) as service, nginx(directory, service.url) as url:
        yield url


@pytest.mark.parametrize("prefix", ["/outer/tables", "/removed"])
def test_pages_redirects_and_servers_have_the_prefix_of_the_proxy(prefixed: str, prefix: str) -> None:
    url = f"{prefixed}{prefix}"
    assert httpx.put(f"{url}/v1/tables/seen/records/a", json={"n": 1}).status_code == 204
    assert httpx.put(f"{prefixed}/outer/tables/v1/tables/seen/records/a%2Fb", json={"n": 2}).status_code == 204
    assert httpx.get(f"{prefixed}/v1/tables/seen/records/a%2Fb").json() == {"n": 2}
    assert httpx.get(f"{url}/").headers["Location"] == f"{prefix}/console"
    assert [server["url"] for server in httpx.get(f"{url}/openapi.json").json()["servers"]] == [prefix]
    for page in ("/docs", "/console", "/console/", "/console/tables/seen"):
        text = httpx.get(f"{url}{page}").text
        links = re.findall(r"""(?:(?:href|src|action|hx-get)=["']|url: ')(/[^"']*)""", text)
        assert len(links) >= 3
        for link in links:
            assert link.startswith(f"{prefix}/")
            assert httpx.get(f"{prefixed}{link}").status_code == 200, link
