"""The generations of a table on its page: shown, activated, deleted, and looked into."""

import html
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from service.http.console.looking import looking
from support.running import Service, running

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("browser")]  # the group shares the services

PAGE, API = "/console/tables/replaced", "/v1/tables/replaced/generations"
FROM_A_PAGE = {"HX-Request": "true", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def loaded(client: httpx.Client) -> int:
    """A generation that loads, with one record. The current one has another."""
    client.put("/v1/tables/replaced/records/a", json={"of": "current"})
    number: int = client.post(API, json={"note": "<b>daily</b>"}).json()["generation"]
    client.put(f"/v1/tables/replaced@{number}/records/a", json={"of": "loading"})
    return number


def current(client: httpx.Client) -> int:
    number: int = client.get("/v1/tables/replaced").json()["generation"]
    return number


def shown(client: httpx.Client, number: int) -> str:
    """Return the text of a generation's row."""
    page = client.get(f"{PAGE}/generations", headers=FROM_A_PAGE).text
    [row] = [one for one in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if f'@{number}"' in one]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", row)).split())


def test_a_generation_is_shown_activated_and_rolled_back(client: httpx.Client, loaded: int) -> None:
    before, row = current(client), shown(client, loaded)
    assert re.fullmatch(rf"{loaded} loading \S+Z never about 1 \S+.* <b>daily</b> Activate Delete", row), row
    path = f"{PAGE}/generations/{loaded}/activate?expected={before}"
    assert f"Generation {loaded} is current" in client.post(path, headers=FROM_A_PAGE).text
    assert current(client) == loaded
    assert re.fullmatch(rf"{loaded} current .* <b>daily</b>", shown(client, loaded))
    assert re.fullmatch(rf"{before} kept .* Roll back Delete", shown(client, before))
    again = client.post(f"{PAGE}/generations/{loaded}/activate?expected={before + 1000}", headers=FROM_A_PAGE)
    assert "is current in every process" in again.text  # as over HTTP
    back = client.post(f"{PAGE}/generations/{before}/activate?expected={before + 1000}", headers=FROM_A_PAGE)
    assert "Another generation became current" in back.text
    assert current(client) == loaded
    client.post(f"{PAGE}/generations/{before}/activate?expected={loaded}", headers=FROM_A_PAGE)
    assert current(client) == before
    assert "was deleted" in client.delete(f"{PAGE}/generations/{loaded}", headers=FROM_A_PAGE).text
    assert client.get(f"/v1/tables/replaced@{loaded}/records/a").status_code == 404


def test_the_page_of_a_generation_shows_its_records_and_only_changes_those_that_load(
    client: httpx.Client, loaded: int
) -> None:
    record, before = f"{PAGE}@{loaded}/record?k0=a", current(client)
    for path in (record, f"{PAGE}@{loaded}/records"):
        assert '"loading"' in html.unescape(client.get(path).text)
    assert "Save" in client.get(record).text
    assert 'id="generations"' not in client.get(f"{PAGE}@{loaded}").text
    client.post(f"{API}/{loaded}/activate")
    kept = f"{PAGE}@{before}/record?k0=a"
    assert '"current"' in html.unescape(client.get(kept).text)
    for number in (before, loaded):
        assert not re.search(">(Save|Delete|Create)<", client.get(f"{PAGE}@{number}/record?k0=a").text)
    refused = client.put(f"{PAGE}@{before}/record?k0=new", data={"value": "{}"}, headers=FROM_A_PAGE)
    assert "generation_sealed" in refused.text
    assert client.get(f"/v1/tables/replaced@{before}/records/new").status_code == 404
    assert client.get(f"{PAGE}@{loaded + 1000}").status_code == 404


@pytest.mark.parametrize("expected", ["", "?expected=", "?expected=x", "?expected=0"])
def test_an_activation_names_the_current_generation(client: httpx.Client, loaded: int, expected: str) -> None:
    answer = client.post(f"{PAGE}/generations/{loaded}/activate{expected}", headers=FROM_A_PAGE)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("table", ["quiet", "spread"])
def test_the_page_of_another_table_has_no_generations(client: httpx.Client, table: str) -> None:
    assert 'id="generations"' not in client.get(f"/console/tables/{table}").text
    assert "<code>unsupported</code>" in client.get(f"/console/tables/{table}/generations", headers=FROM_A_PAGE).text


CONFIG = """
stores: {local: {kind: memory}}
tables: {t: {store: local, generations: true}}
console: {edit: %s}
auth:
  tokens:
    - {name: none, sha256: "%s"}
    - {name: reader, sha256: "%s", read: ["*"]}
    - {name: writer, sha256: "%s", read: ["*"], write: ["*"]}
"""


@pytest.fixture(scope="module", params=[True, False])
def guarded(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[httpx.Client, bool]]:
    """A client that may write the table, and whether the console of its service may change records."""
    directory: Path = tmp_path_factory.mktemp("rights")
    config, edit = directory / "tableside.yaml", str(request.param).lower()
    config.write_text(CONFIG % (edit, *(sha256(text).hexdigest() for text in (b"none", b"reader", b"writer"))))
    headers = {"Authorization": "Bearer writer"}
    with running(directory, config) as service, httpx.Client(base_url=service.url, headers=headers) as client:
        yield client, request.param


@pytest.mark.parametrize(
    ("caller", "headers", "reads", "changes"),
    [
        ("none", FROM_A_PAGE, False, False),
        ("reader", FROM_A_PAGE, True, False),
        ("writer", FROM_A_PAGE, True, True),
        ("writer", {"HX-Request": "true"}, True, False),
        ("writer", {"HX-Request": "true", "Sec-Fetch-Site": "cross-site"}, True, False),
        ("writer", {"Sec-Fetch-Site": "same-origin"}, True, False),
    ],
)
def test_changes_need_the_rights_the_configuration_and_a_page_of_the_console(
    guarded: tuple[httpx.Client, bool], caller: str, headers: dict[str, str], reads: bool, changes: bool
) -> None:
    (client, editable), api, page = guarded, "/v1/tables/t/generations", "/console/tables/t/generations"
    before, number = client.get("/v1/tables/t").json()["generation"], client.post(api).json()["generation"]
    sent = {**headers, "Authorization": f"Bearer {caller}"}
    listed = client.get(page, headers=sent)
    assert listed.status_code == (200 if reads else 403)
    assert (f"{page}/{number}/activate" in listed.text) == (editable and caller == "writer")
    activated = client.post(f"{page}/{number}/activate?expected={before}", headers=sent)
    deleted = client.delete(f"{page}/{before}", headers=sent)
    for answer in (activated, deleted):
        assert answer.status_code == (200 if changes and editable else 403), answer.text
    states = {one["generation"]: one["state"] for one in client.get(api).json()["generations"]}
    assert (states[number], before in states) == (("current", False) if changes and editable else ("loading", True))
    client.delete(f"{api}/{number}")


@pytest.mark.daily
@pytest.mark.browser
async def test_a_generation_is_activated_and_deleted_in_a_browser(
    browser: Browser, service: Service, client: httpx.Client, loaded: int
) -> None:
    before = current(client)
    async with looking(browser) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        await page.goto(f"{service.url}{PAGE}")
        row = page.locator("#generations tbody tr", has=page.get_by_role("link", name=str(loaded), exact=True))
        await row.get_by_role("button", name="Activate").click()
        await expect(page.locator("#generations")).to_contain_text(f"Generation {loaded} is current in every process.")
        await expect(row).to_contain_text("current")
        assert current(client) == loaded
        earlier = page.locator("#generations tbody tr", has=page.get_by_role("link", name=str(before), exact=True))
        await earlier.get_by_role("button", name="Delete").click()
        await expect(earlier).to_have_count(0)
        await row.get_by_role("link").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text(f"replaced@{loaded}")
