"""Pages without a browser: response headers, rejected requests, and that content of records is escaped."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from support.running import Service, running

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
def test_a_page_is_kept_by_nobody_and_runs_only_its_own_scripts(client: httpx.Client, path: str) -> None:
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


def test_the_files_of_a_page_are_there(client: httpx.Client) -> None:
    paths = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', client.get("/console").text)
    assert len(paths) == 3
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "public, max-age=86400"
        assert answer.headers["Content-Type"].startswith("text/")
    assert client.get("/console/static/htmx.LICENSE").status_code == 404


def test_a_table_that_is_not_there_is_a_page_too(client: httpx.Client) -> None:
    answer = client.get("/console/tables/nothing")
    assert answer.status_code == 404
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "There is no such table." in answer.text
    part = client.get("/console/tables/nothing/live", headers={"HX-Request": "true"})
    assert (part.status_code, part.json()["code"]) == (404, "table_not_found")


def test_what_a_record_holds_stays_text(client: httpx.Client) -> None:
    key, text = "<i>&\"'/%41+ü", "</textarea><script>alert(1)</script>"
    put(client, "quiet", quote(key, safe=""), {"<b>": text})
    for path in (f"{RECORD}{quote(key)}", f"/console/tables/quiet/records?prefix={quote('<i>')}"):
        page = client.get(path).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert "<i>" not in page
    assert "There is no record" not in client.get(f"{RECORD}{quote(key)}").text
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
def test_what_another_site_asks_for_is_not_done(client: httpx.Client, headers: dict[str, str]) -> None:
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


def test_a_browser_that_says_only_where_it_is_may_change_what_is_there(client: httpx.Client) -> None:
    headers = {"HX-Request": "true", "Origin": f"http://{client.base_url.netloc.decode()}"}
    answer = form(client, "by-origin", {"value": '{"n": 2}'}, headers)
    assert answer.status_code == 200
    assert client.get("/v1/tables/quiet/records/by-origin").json() == {"n": 2}


def test_nothing_is_changed_where_the_configuration_does_not_say_so(watched: Service) -> None:
    with httpx.Client(base_url=watched.url) as client:
        etag = put(client, "quiet", "a", {"n": 1})
        changed = form(client, "a", {"value": "{}", "etag": etag})
        deleted = client.delete(f"{RECORD}a&etag={etag}", headers=FROM_A_PAGE)
        for answer in (changed, deleted):
            assert answer.status_code == 403
            assert "console.edit" in answer.json()["detail"]
        assert client.get("/v1/tables/quiet/records/a").json() == {"n": 1}


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_other_methods_are_not_known(client: httpx.Client, method: str) -> None:
    assert client.request(method, f"{RECORD}a", headers=FROM_A_PAGE).status_code == 405


def test_a_form_has_a_bound_and_one_media_type(client: httpx.Client) -> None:
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
        ({"value": "{"}, "This cannot be read."),
        ({"value": "[]"}, "This is not allowed for a record of this table."),
        ({"value": '{"_ts": 1}'}, "This is not allowed for a record of this table."),
        ({"value": "{}", "ttl_s": "soon"}, "This is not allowed for a record of this table."),
        ({"value": "{}", "ttl_s": "0"}, "This is not allowed for a record of this table."),
    ],
)
def test_a_value_that_is_none_is_given_back_with_the_reason(
    client: httpx.Client, members: dict[str, str], saying: str
) -> None:
    answer = form(client, "faulty", members)
    assert answer.status_code == 200
    assert saying in answer.text
    assert "Nothing was changed." in answer.text
    assert members["value"].replace('"', "&#34;") in answer.text
    assert client.get("/v1/tables/quiet/records/faulty").status_code == 404


def test_an_expiry_is_kept_by_what_the_form_says(client: httpx.Client) -> None:
    put(client, "quiet", "expiring?ttl_s=500", {"n": 1})
    page = client.get(f"{RECORD}expiring").text
    [left] = re.findall(r'name="ttl_s" value="(\d+)"', page)
    assert 490 <= int(left) <= 500
    [etag] = re.findall(r'name="etag" value="([^"]+)"', page)
    assert "Saved." in form(client, "expiring", {"value": '{"n": 2}', "etag": etag, "ttl_s": left}).text
    assert "Tableside-Expires-At" in client.get("/v1/tables/quiet/records/expiring").headers


def test_a_key_is_of_the_parts_and_types_that_the_table_has(client: httpx.Client) -> None:
    put(client, "visits", "u%2F1/-7", {"n": 1})
    assert "ETag" in client.get("/console/tables/visits/record?k0=u/1&k1=-7").text
    wrong = client.get("/console/tables/visits/record?k0=u/1&k1=x").text
    assert "a key of this table is a decimal integer" in wrong
    assert "<code>invalid_operation</code>" in wrong
    page = client.get("/console/tables/visits/records?partition=u/1").text
    assert "k0=u%2F1&amp;k1=-7" in page


def test_a_store_that_is_gone_is_said_in_a_sentence(client: httpx.Client) -> None:
    for path in ("record?k0=a", "records"):
        page = client.get(f"/console/tables/sessions/{path}").text
        assert "The store cannot be reached." in page
        assert "<code>store_unavailable</code>" in page
        assert "Trying again may help." in page


def test_a_cursor_that_is_none_is_said_in_a_sentence(client: httpx.Client) -> None:
    assert "not a cursor of this scan" in client.get("/console/tables/quiet/records?cursor=x").text


def test_the_page_names_no_secret(client: httpx.Client) -> None:
    assert "redis://" not in client.get("/console/tables/sessions").text + client.get("/console").text


def test_a_console_that_is_off_is_not_there(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {local: {kind: memory}}\nconsole: {enabled: false}\n")
    with running(tmp_path, config) as started:
        answer = httpx.get(f"{started.url}/console")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_of_a_thousand_tables_the_first_are_shown_and_others_are_found_by_name(tmp_path: Path) -> None:
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
