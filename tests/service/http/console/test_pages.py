"""Pages without a browser: response headers, rejected requests, and that content of records is escaped."""

import html
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from support.running import Service, running
from support.waiting import until
from tableside.http.console.records import SHOWN_CHARACTERS_MAX

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("browser")]  # the group shares the services

FROM_A_PAGE = {"HX-Request": "true", "Sec-Fetch-Site": "same-origin"}
RECORD = "/console/tables/quiet/record?k0="


def put(client: httpx.Client, table: str, key: str, value: Mapping[str, Any]) -> str:
    answer = client.put(f"/v1/tables/{table}/records/{key}", json=value)
    assert answer.status_code == 204
    return answer.headers["ETag"].strip('"')


def form(
    client: httpx.Client, key: str, members: Mapping[str, str], headers: Mapping[str, str] = FROM_A_PAGE
) -> httpx.Response:
    return client.put(f"{RECORD}{key}", data=members, headers=dict(headers))


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/live", "/console/tables/quiet", f"{RECORD}a"])
def test_a_page_is_not_cached_and_runs_only_its_own_scripts(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script(?![^>]* src=)|<style|style=| on[a-z]+=", answer.text)


def test_an_absent_table_has_an_error_page(client: httpx.Client) -> None:
    answer = client.get("/console/tables/nothing")
    assert answer.status_code == 404
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "There is no such table." in answer.text
    part = client.get("/console/tables/nothing/live", headers={"HX-Request": "true"})
    assert (part.status_code, part.json()["code"]) == (404, "table_not_found")


def test_the_content_of_a_record_is_escaped(client: httpx.Client) -> None:
    key, text = "<i>&\"'/%41+ü", "</textarea><script>alert(1)</script>"
    put(client, "quiet", quote(key, safe=""), {"<b>": text})
    for path in (f"{RECORD}{quote(key)}", f"/console/tables/quiet/records?prefix={quote('<i>')}"):
        page = client.get(path).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert "<i>" not in page
    assert "Record not found" not in client.get(f"{RECORD}{quote(key)}").text
    link = re.search(r'<a href="(/console/tables/quiet/record[^"]+)"', page)
    assert link is not None
    assert "ETag" in client.get(link[1].replace("&amp;", "&")).text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HX-Request": "true"},
        {"Sec-Fetch-Site": "same-origin"},
        {"HX-Request": "true", "Sec-Fetch-Site": "cross-site"},
        {"HX-Request": "true", "Sec-Fetch-Site": "same-site"},
        {"HX-Request": "true", "Sec-Fetch-Site": "none"},
        {"HX-Request": "true", "Origin": "http://elsewhere.example"},
        {"HX-Request": "true", "Origin": "null"},
        {"HX-Request": "true", "Sec-Fetch-Site": "cross-site", "Origin": "http://{host}"},
    ],
)
def test_requests_from_other_sites_are_rejected(client: httpx.Client, headers: dict[str, str]) -> None:
    host = client.base_url.netloc.decode()
    sent = {name: text.replace("{host}", host) for name, text in headers.items()}
    etag = put(client, "quiet", "guarded", {"n": 1})
    made = form(client, "guarded-new", {"value": "{}"}, sent)
    changed = form(client, "guarded", {"value": "{}", "etag": etag}, sent)
    deleted = client.delete(f"{RECORD}guarded&etag={etag}", headers=sent)
    for answer in (made, changed, deleted):
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert client.get("/v1/tables/quiet/records/guarded").json() == {"n": 1}
    assert client.get("/v1/tables/quiet/records/guarded-new").status_code == 404


def test_a_request_with_only_the_header_origin_may_change_records(client: httpx.Client) -> None:
    headers = {"HX-Request": "true", "Origin": f"http://{client.base_url.netloc.decode()}"}
    answer = form(client, "by-origin", {"value": '{"n": 2}'}, headers)
    assert answer.status_code == 200
    assert client.get("/v1/tables/quiet/records/by-origin").json() == {"n": 2}


def test_changes_are_rejected_unless_the_configuration_allows_them(watched: Service) -> None:
    with httpx.Client(base_url=watched.url) as client:
        etag = put(client, "quiet", "a", {"n": 1})
        changed = form(client, "a", {"value": "{}", "etag": etag})
        deleted = client.delete(f"{RECORD}a&etag={etag}", headers=FROM_A_PAGE)
        for answer in (changed, deleted):
            assert answer.status_code == 403
            assert "console.edit" in answer.json()["detail"]
        assert client.get("/v1/tables/quiet/records/a").json() == {"n": 1}
        assert '<pre tabindex="0" aria-label="Value">' in client.get(f"{RECORD}a").text
        for key in ("a", "absent"):
            assert not re.search("<textarea|>(Save|Delete|Create)<", client.get(f"{RECORD}{key}").text)


def test_deleting_a_changed_record_shows_the_current_version(client: httpx.Client) -> None:
    etag = put(client, "quiet", "kept", {"n": 1})
    put(client, "quiet", "kept", {"n": 2})
    page = html.unescape(client.delete(f"{RECORD}kept&etag={etag}", headers=FROM_A_PAGE).text)
    assert "The record is unchanged." in page
    assert '"n": 2' in page
    assert client.get("/v1/tables/quiet/records/kept").json() == {"n": 2}


def test_a_cached_record_shows_its_age_unless_the_cache_is_bypassed(client: httpx.Client) -> None:
    put(client, "cached", "aged", {"n": 1})
    path = "/console/tables/cached/record?k0=aged"
    assert re.search(r"the cache, \S+ (µs|ms|s) old", [client.get(path).text for _ in range(2)][1])
    assert re.search("Read from</dt><dd>the store", client.get(f"{path}&fresh=on").text)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_other_methods_are_rejected(client: httpx.Client, method: str) -> None:
    assert client.request(method, f"{RECORD}a", headers=FROM_A_PAGE).status_code == 405


def test_a_form_has_a_size_limit_and_one_media_type(client: httpx.Client) -> None:
    assert form(client, "a", {"value": "x" * 1_100_000}).status_code == 413
    answer = client.put(f"{RECORD}a", json={"value": "{}"}, headers=FROM_A_PAGE)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    answer = client.put(
        f"{RECORD}a",
        content=b"value=%ff",
        headers={**FROM_A_PAGE, "Content-Type": "application/x-www-form-urlencoded"},
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


@pytest.mark.parametrize(
    ("members", "saying"),
    [
        ({"value": "{"}, "The request cannot be parsed, or its structure is invalid."),
        ({"value": "[]"}, "The name of the table, the key, value, update or operation is invalid."),
        ({"value": '{"_ts": 1}'}, "The name of the table, the key, value, update or operation is invalid."),
        ({"value": "{}", "ttl_s": "soon"}, "The name of the table, the key, value, update or operation is invalid."),
        ({"value": "{}", "ttl_s": "0"}, "The name of the table, the key, value, update or operation is invalid."),
    ],
)
def test_an_invalid_value_is_shown_again_with_the_reason(
    client: httpx.Client, members: dict[str, str], saying: str
) -> None:
    answer = form(client, "faulty", members)
    assert answer.status_code == 200
    assert saying in answer.text
    assert "The record is unchanged." in answer.text
    assert members["value"].replace('"', "&#34;") in answer.text
    assert client.get("/v1/tables/quiet/records/faulty").status_code == 404


def test_the_form_decides_whether_the_expiry_is_kept(client: httpx.Client) -> None:
    put(client, "quiet", "expiring?ttl_s=500", {"n": 1})
    page = client.get(f"{RECORD}expiring").text
    [left] = re.findall(r'name="ttl_s" value="(\d+)"', page)
    assert 490 <= int(left) <= 500
    [etag] = re.findall(r'name="etag" value="([^"]+)"', page)
    assert "Saved." in form(client, "expiring", {"value": '{"n": 2}', "etag": etag, "ttl_s": left}).text
    assert "Tableside-Expires-At" in client.get("/v1/tables/quiet/records/expiring").headers


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
    links = re.findall(r'<a href="(/console/tables/spread/record[^"]+)"', page)
    assert len(links) == 16
    opened = [client.get(link.replace("&amp;", "&")).text for link in links]
    assert [("&#34;partition&#34;: 0" in one, "&#34;partition&#34;: 1" in one) for one in opened] == [
        ("partitions=0" in link, "partitions=1" in link) for link in links
    ]


def test_a_record_is_changed_and_deleted_in_its_partition(client: httpx.Client) -> None:
    def values() -> list[int]:
        found = [client.get("/v1/tables/spread/records/both", params={"partitions": index}) for index in (0, 1)]
        return [answer.json()["n"] if answer.status_code == 200 else answer.status_code for answer in found]

    for index in (0, 1):
        client.put("/v1/tables/spread/records/both", json={"n": 1}, params={"partitions": index})
    path = "/console/tables/spread/record?k0=both&partitions="
    for index, expected in ((0, [2, 1]), (1, [2, 2])):
        [etag] = re.findall(r'name="etag" value="([^"]+)"', client.get(f"{path}{index}").text)
        saved = client.put(f"{path}{index}", data={"value": '{"n": 2}', "etag": etag}, headers=FROM_A_PAGE)
        assert "Saved." in saved.text
        assert values() == expected
        [etag] = re.findall(r'name="etag" value="([^"]+)"', saved.text)
    deleted = client.delete(f"{path}1&etag={etag}", headers=FROM_A_PAGE)
    assert "The record was deleted." in deleted.text
    assert values() == [2, 404]
    assert "The record was created." in client.put(f"{path}1", data={"value": '{"n": 3}'}, headers=FROM_A_PAGE).text
    assert values() == [2, 3]


@pytest.mark.parametrize("partitions", ["2", "-1", "all", "0,1", "x"])
def test_a_record_is_looked_up_in_one_partition(client: httpx.Client, partitions: str) -> None:
    page = client.get("/console/tables/spread/record", params={"k0": "a", "partitions": partitions}).text
    assert "<code>invalid_operation</code>" in page


def test_an_empty_service_shows_how_to_write_the_first_record(tmp_path: Path) -> None:
    with running(tmp_path) as started, httpx.Client(base_url=started.url) as client:
        page = html.unescape(client.get("/console").text)
        [command] = re.findall(r"<pre[^>]*>(curl .*?)</pre>", page, re.DOTALL)
        url, body = re.search(r"PUT (\S+) ", command), re.search(r"-d '(.*)'", command)
        assert url is not None
        assert body is not None
        assert client.put(url[1], content=body[1], headers={"Content-Type": "application/json"}).status_code == 204
        assert "curl" not in client.get("/console").text


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
        assert "A retry may succeed." in page


def test_an_invalid_cursor_is_reported_in_a_sentence(client: httpx.Client) -> None:
    assert "not a cursor of this scan" in client.get("/console/tables/quiet/records?cursor=x").text


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
        for number in range(60):
            put(client, f"t{number:03}", "a", {})
        page = client.get("/console").text
        assert page.count('<th scope="row">') == 50
        assert "10 more" in page
        found = client.get("/console?name=T059").text
        assert re.findall(r'<th scope="row"><a id="to-([^"]+)"', found) == ["t059"]


def test_a_long_value_is_shown_in_part_and_not_edited(client: httpx.Client) -> None:
    put(client, "quiet", "long", {"a": list(range(90_000))})
    page = client.get(f"{RECORD}long").text
    assert html.escape('{"a":[0,1,2,').replace("&quot;", "&#34;") in page
    assert "too long to display in full" in page
    assert "89999" not in page
    answer = form(client, "long", {"value": '{"a":"%s"}' % ("x" * SHOWN_CHARACTERS_MAX)})
    assert "the console can change values of at most 200000 characters" in answer.text
    assert "The record is unchanged." in answer.text
