"""The page of the HTTP interface works in a browser with a content security policy that allows only its needs."""

import re

import httpx
import pytest
from playwright.async_api import Browser, ConsoleMessage, expect

from service.http.api_client import check_refused
from support.running import Service
from support.waiting import WAIT_MAX_S

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.daily
@pytest.mark.browser
async def test_the_page_shows_the_interface_without_blocked_requests(browser: Browser, service: Service) -> None:
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    page = await browser.new_page()
    page.set_default_timeout(WAIT_MAX_S * 1000)
    try:
        page.on("console", note)
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.goto(f"{service.url}/docs")
        await page.get_by_role("button", name=re.compile("livez")).first.click()
        await page.get_by_role("button", name="Try it out").click()
        await page.get_by_role("button", name="Execute").click()
        await expect(page.get_by_text('"status": "alive"').first).to_be_visible(timeout=WAIT_MAX_S * 1000)
    finally:
        await page.close()
    assert said == []


async def test_the_content_security_policy_allows_only_what_the_page_needs(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        headers = (await client.get("/docs")).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/v1/tables", "no-cache"),
        ("/v1/tables/visits/records/absent/1", "no-cache"),
        ("/v1/tables/absent/records/1", "no-cache"),
        ("/metrics", "no-cache"),
        ("/console", "no-store"),
        ("/static-offline-docs/swagger-ui.css", "public, max-age=86400"),
    ],
)
async def test_every_response_has_headers_for_caching_and_content_type(service: Service, path: str, kept: str) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        headers = (await client.get(path)).headers
    assert headers.get_list("Cache-Control") == [kept]
    assert headers.get_list("X-Content-Type-Options") == ["nosniff"]


@pytest.mark.parametrize("text", ["bytes=0-1", "bytes=99999999999-", "x"])
async def test_files_are_sent_as_a_whole(service: Service, text: str) -> None:
    path = "/static-offline-docs/swagger-ui.css"
    async with httpx.AsyncClient(base_url=service.url) as client:
        whole = await client.get(path)
        response = await client.get(path, headers={"Range": text})
    assert (response.status_code, response.content) == (200, whole.content)
    assert "Accept-Ranges" not in response.headers


@pytest.mark.parametrize("name", ["none.css", "", "%00", "a%00.css", "a" * 3000, "..%2F..%2Fapp.py", "%0A", "a/b"])
async def test_the_error_for_a_missing_file_is_a_problem(service: Service, name: str) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        check_refused(await client.get(f"/static-offline-docs/{name}"), 404, "not_found")
