"""Pages: response headers, health, records, generations, and that content of records is escaped."""

import html
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from support.running import running
from support.waiting import until

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("browser")]  # the group shares the services

RECORD = "/console/tables/quiet/record?k0="


def put(client: httpx.Client, table: str, key: str, value: Mapping[str, Any]) -> str:
    answer = client.put(f"/v1/tables/{table}/records/{key}", json=value)
    assert answer.status_code == 204
    return answer.headers["ETag"].strip('"')


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/tables/quiet", f"{RECORD}a"])
def test_a_page_is_not_cached_and_runs_no_scripts(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Security-Policy"] == (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script|<style|style=| on[a-z]+=", answer.text)


def test_the_files_of_a_page_are_served(client: httpx.Client) -> None:
    links = re.findall(r'<link [^>]*href="([^"]+)"', client.get("/console").text)
    types = [client.get(link).headers["Content-Type"] for link in links]
    assert types == ["image/svg+xml", "text/css; charset=utf-8"]


def test_an_absent_table_has_an_error_page(client: httpx.Client) -> None:
    answer = client.get("/console/tables/nothing")
    assert answer.status_code == 404
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "There is no such table." in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_console_changes_nothing(client: httpx.Client, method: str) -> None:
    assert client.request(method, f"{RECORD}a").status_code == 405


def test_the_content_of_a_record_is_escaped(client: httpx.Client) -> None:
    key, text = "<i>&\"'/%41+ü", "</pre><script>alert(1)</script>"
    put(client, "quiet", quote(key, safe=""), {"<b>": text})
    for path in (f"{RECORD}{quote(key)}", f"/console/tables/quiet/records?prefix={quote('<i>')}"):
        page = client.get(path).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert "<i>" not in page
    link = re.search(r'<a href="(/console/tables/quiet/record\?[^"]+)"', page)
    assert link is not None
    assert "ETag" in client.get(link[1].replace("&amp;", "&")).text
    assert "Record not found" in client.get(f"{RECORD}absent").text


def test_a_cached_record_shows_its_age_unless_the_cache_is_bypassed(client: httpx.Client) -> None:
    put(client, "cached", "aged", {"n": 1})
    path = "/console/tables/cached/record?k0=aged"
    assert re.search(r"the cache, \S+ (µs|ms|s) old", [client.get(path).text for _ in range(2)][1])
    assert re.search("Read from</dt><dd>the store", client.get(f"{path}&fresh=on").text)


def test_a_record_shows_its_expiry(client: httpx.Client) -> None:
    put(client, "quiet", "expiring?ttl_s=500", {"n": 1})
    assert re.search(r"Expires</dt><dd>20\S+Z</dd>", client.get(f"{RECORD}expiring").text)


def test_a_key_must_have_the_parts_and_types_of_the_table(client: httpx.Client) -> None:
    put(client, "visits", "u%2F1/-7", {"n": 1})
    assert "ETag" in client.get("/console/tables/visits/record?k0=u/1&k1=-7").text
    wrong = client.get("/console/tables/visits/record?k0=u/1&k1=x").text
    assert "a key of this table is a decimal integer" in wrong
    assert "<code>invalid_operation</code>" in wrong
    page = client.get("/console/tables/visits/records?partition=u/1").text
    assert "k0=u%2F1&amp;k1=-7" in page


def test_a_listed_record_opens_in_its_partition(client: httpx.Client) -> None:
    for number in range(8):
        path = f"/v1/tables/spread/records/s{number}"
        for partition in (0, 1):
            value = {"partition": partition}
            assert client.put(path, json=value, params={"partitions": partition}).status_code == 204
    page = client.get("/console/tables/spread/records").text
    links = re.findall(r'<a href="(/console/tables/spread/record\?[^"]+)"', page)
    assert len(links) == 16
    opened = [client.get(link.replace("&amp;", "&")).text for link in links]
    assert [("&#34;partition&#34;: 0" in one, "&#34;partition&#34;: 1" in one) for one in opened] == [
        ("partitions=0" in link, "partitions=1" in link) for link in links
    ]


def test_an_invalid_partition_or_cursor_is_reported(client: httpx.Client) -> None:
    for partitions in ("2", "-1", "all", "0,1", "x"):
        page = client.get("/console/tables/spread/record", params={"k0": "a", "partitions": partitions}).text
        assert "<code>invalid_operation</code>" in page
    assert "not a cursor of this scan" in client.get("/console/tables/quiet/records?cursor=x").text


def test_records_are_listed_in_pages(client: httpx.Client) -> None:
    puts = [{"op": "put", "key": f"N{number:03}", "value": {"n": number}} for number in range(60)]
    puts.append({"op": "put", "key": "other", "value": {}})
    assert client.post("/v1/tables/aircraft/batch", json={"operations": puts}).status_code == 200
    keys, path = list[str](), "/console/tables/aircraft/records?prefix=N"
    while path:
        page = client.get(path).text
        keys += re.findall(r'<th scope="row"><a[^>]*>([^<]+)</a>', page)
        found = re.search('href="([^"]+)">Next page', page)
        path = html.unescape(found[1]) if found else ""
    assert keys == [f"N{number:03}" for number in range(60)]


def test_generations_are_listed_with_links_to_their_records(client: httpx.Client) -> None:
    api, page = "/v1/tables/replaced/generations", "/console/tables/replaced/generations"
    put(client, "replaced", "a", {"of": "current"})
    number = client.post(api, json={"note": "<b>daily</b>"}).json()["generation"]
    put(client, f"replaced@{number}", "a", {"of": "loading"})
    rows = re.findall(r"<tr>.*?</tr>", client.get(page).text, re.DOTALL)
    newest = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", rows[1])).split())
    assert re.fullmatch(rf"{number} loading \S+Z never 1 \S+ <b>daily</b>", newest), newest
    assert '"loading"' in html.unescape(client.get(f"/console/tables/replaced@{number}/records").text)
    assert client.get(f"/console/tables/replaced@{number + 1}/records").status_code == 404
    assert "<code>unsupported</code>" in client.get("/console/tables/spread/generations").text


def test_shed_requests_are_shown(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: memory}}\ntables: {t: {store: local}}\nlimits: {in_flight_max: 1}\n")
    with running(tmp_path, config) as started, httpx.Client(base_url=started.url) as client:
        until(lambda: "In flight" in client.get("/console").text)
        assert "Load shedding" not in client.get("/console").text
        until(lambda: shed_some(started.url, client) > 0)
        for path in ("/console", "/console/tables/t"):
            until(lambda path=path: "<b>Load shedding:</b>" in client.get(path).text)  # type: ignore[misc]
            page = client.get(path).text
            assert '<p class="health warning">' in page
            assert "All tables OK" not in page


def shed_some(url: str, client: httpx.Client) -> int:
    """Occupy the only slot with a request without a body, and return how many other requests were rejected."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(b"PUT /v1/tables/t/records/a HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n\r\n")
        return sum(client.get("/v1/tables/t/records/a").status_code == 503 for _ in range(100))


def test_an_unreachable_store_is_reported_in_a_sentence(client: httpx.Client) -> None:
    for path in ("record?k0=a", "records"):
        page = client.get(f"/console/tables/sessions/{path}").text
        assert "The store could not be reached, or did not answer." in page
        assert "<code>store_unavailable</code>" in page
    until(lambda: "store unreachable" in client.get("/console").text)
    assert "store unreachable" in client.get("/console/tables/sessions").text


def test_the_page_names_no_secret(client: httpx.Client) -> None:
    assert "redis://" not in client.get("/console/tables/sessions").text + client.get("/console").text


def test_a_disabled_console_is_not_found(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: memory}}\nconsole: {enabled: false}\n")
    with running(tmp_path, config) as started:
        answer = httpx.get(f"{started.url}/console")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_long_lists_of_tables_are_truncated_and_can_be_searched(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: memory}}\nauto_create: true\n")
    with running(tmp_path, config) as started, httpx.Client(base_url=started.url) as client:
        assert "No tables" in client.get("/console").text
        for number in range(60):
            put(client, f"T{number:03}", "a", {})
        page = client.get("/console").text
        assert page.count('<th scope="row">') == 50
        assert "10 more" in page
        found = client.get("/console?name=t059").text
        assert re.findall(r'<th scope="row"><a href="/console/tables/([^"]+)"', found) == ["T059"]


def test_a_long_value_is_shown_in_part(client: httpx.Client) -> None:
    put(client, "quiet", "long", {"a": list(range(90_000))})
    page = client.get(f"{RECORD}long").text
    assert html.escape('{"a":[0,1,2,').replace("&quot;", "&#34;") in page
    assert "too long to display in full" in page
    assert "89999" not in page
