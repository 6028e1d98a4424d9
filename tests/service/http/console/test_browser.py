"""The console in a browser."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from service.http.console.looking import WITHIN_MS, looking
from support.running import Service

pytestmark = [pytest.mark.daily, pytest.mark.browser, pytest.mark.xdist_group("browser")]
GETS = 400
COLOUR = "([selector, member]) => getComputedStyle(document.querySelector(selector))[member]"


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{service.url}/v1/tables", timeout=30) as opened:
        yield opened


async def put(http: httpx.AsyncClient, table: str, key: str, value: Mapping[str, Any]) -> str:
    answer = await http.put(f"/{table}/records/{key}", json=value)
    assert answer.status_code == 204
    return answer.headers["ETag"].strip('"')


async def text(page: Page, row: str) -> str:
    return await page.locator("table.tables tr", has=page.get_by_role("link", name=row, exact=True)).inner_text()


def per_s(row: str) -> float:
    """Return the operations per second in a row of the list of tables."""
    return float(row.split("\t")[4].removesuffix("/s"))


async def test_the_first_page_updates_its_rates_and_marks_failing_tables(
    browser: Browser, service: Service, http: httpx.AsyncClient
) -> None:
    await put(http, "cached", "a", {"n": 1})
    async with looking(browser) as page:
        await page.goto(f"{service.url}/console")
        await expect(page.get_by_role("heading", name="Tables", exact=True)).to_be_visible()
        began = asyncio.get_running_loop().time()
        for _ in range(GETS):
            await http.get("/cached/records/a")
        for _ in range(40):
            await http.get("/limited/records/a")
        row = page.get_by_role("row", name=re.compile("cached"))
        await expect(row).to_contain_text("100 %")
        took = asyncio.get_running_loop().time() - began
        shown = per_s(await text(page, "cached"))
        assert GETS / (took + 15) * 0.8 < shown < GETS
        assert "0 %" in await text(page, "cached")
        await expect(page.get_by_role("row", name=re.compile("^high error rate limited"))).to_be_visible()
        await expect(page.locator("tr.why", has_text="most frequent error: throttled")).to_be_visible()
        await expect(page.get_by_role("row", name=re.compile("^store unreachable sessions"))).to_be_visible()
        await expect(page.locator(".health")).to_contain_text("2 of 12 tables degraded")
        states = await page.locator("tbody .state").all_inner_texts()
        assert set(states[:2]) == {"store unreachable", "high error rate"}
        await expect(page.get_by_role("img", name=re.compile("^Operations, last 10 minutes"))).to_be_visible()


async def test_a_paused_page_does_not_change(browser: Browser, service: Service) -> None:
    async with looking(browser) as page:
        await page.goto(f"{service.url}/console")
        await page.get_by_role("link", name="Pause").click()
        seen = await page.locator("time").first.inner_text()
        await page.wait_for_timeout(2600)
        assert await page.locator("time").first.inner_text() == seen
        await page.get_by_role("link", name="Resume").click()
        await expect(page.locator("time").first).not_to_have_text(seen)


async def test_a_record_is_looked_up_by_its_key(browser: Browser, service: Service, http: httpx.AsyncClient) -> None:
    etag = await put(http, "visits", "anna/-3?ttl_s=600", {"n": 1, "seen": ["a", "b"]})
    async with looking(browser) as page:
        await page.goto(f"{service.url}/console/tables/visits")
        await page.get_by_label("user", exact=True).fill("anna")
        await page.get_by_label("day").fill("-3")
        await page.get_by_role("button", name="Look up").click()
        record = page.locator("#record")
        await expect(record).to_contain_text(etag)
        await expect(record.get_by_label("Value")).to_have_value('{\n  "n": 1,\n  "seen": [\n    "a",\n    "b"\n  ]\n}')
        await expect(record).to_contain_text("in 10 min")
        assert page.url.endswith("/record?k0=anna&k1=-3")
        await page.reload()
        await expect(record).to_contain_text(etag)
        await page.get_by_label("day").fill("-4")
        await page.get_by_role("button", name="Look up").click()
        await expect(record).to_contain_text("Record not found.")


async def test_a_record_is_created_changed_and_deleted(
    browser: Browser, service: Service, http: httpx.AsyncClient
) -> None:
    async with looking(browser) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        record = page.locator("#record")
        await page.goto(f"{service.url}/console/tables/numbers/record?k0=42")
        await record.get_by_label("Value of the new record").fill('{"n": 1}')
        await record.get_by_role("button", name="Create").click()
        await expect(record).to_contain_text("The record was created.")
        assert (await http.get("/numbers/records/42")).json() == {"n": 1}
        await record.get_by_label("Value").fill('{"n": 2, "text": "ü & <b>"}')
        await record.get_by_label("TTL in seconds").fill("300")
        await record.get_by_role("button", name="Save").click()
        await expect(record).to_contain_text("Saved.")
        await expect(record).to_contain_text("in 5 min")
        assert (await http.get("/numbers/records/42")).json() == {"n": 2, "text": "ü & <b>"}
        await record.get_by_role("button", name="Delete").click()
        await expect(record).to_contain_text("The record was deleted.")
        assert (await http.get("/numbers/records/42")).status_code == 404


async def test_a_conflicting_edit_shows_both_versions(
    browser: Browser, service: Service, http: httpx.AsyncClient
) -> None:
    await put(http, "quiet", "raced", {"same": 0, "n": 1})
    async with looking(browser) as page:
        record = page.locator("#record")
        await page.goto(f"{service.url}/console/tables/quiet/record?k0=raced")
        await record.get_by_label("Value").fill('{"same": 0, "n": 2}')
        theirs = await put(http, "quiet", "raced", {"same": 0, "n": 3})
        await record.get_by_role("button", name="Save").click()
        await expect(record.get_by_role("alert")).to_contain_text("The record was changed after it was loaded.")
        await expect(record.get_by_role("alert")).to_contain_text("The record is unchanged.")
        await expect(record.get_by_role("alert")).to_contain_text("precondition_failed")
        assert await record.locator("figure mark").all_inner_texts() == ['  "n": 2', '  "n": 3']
        await expect(record.locator("figure", has_text="Current version")).to_contain_text(theirs)
        assert (await http.get("/quiet/records/raced")).json() == {"same": 0, "n": 3}
        await expect(record.get_by_label("Value")).to_have_value('{"same": 0, "n": 2}')
        await record.get_by_role("button", name="Save").click()
        await expect(record).to_contain_text("Saved.")
        assert (await http.get("/quiet/records/raced")).json() == {"same": 0, "n": 2}


async def test_records_are_listed_in_pages(browser: Browser, service: Service, http: httpx.AsyncClient) -> None:
    puts = [{"op": "put", "key": f"N{number:03}", "value": {"n": number}} for number in range(60)]
    puts.append({"op": "put", "key": "other", "value": {}})
    assert (await http.post("/aircraft/batch", json={"operations": puts})).status_code == 200
    async with looking(browser) as page:
        await page.goto(f"{service.url}/console/tables/aircraft")
        await page.get_by_label("Key begins with").fill("N")
        await page.get_by_role("button", name="List").click()
        keys: list[str] = []
        rows = page.locator("#scan tbody th")
        for start in ("N000", "N025", "N050"):
            await expect(rows.first).to_have_text(start)
            keys += await rows.all_inner_texts()
            if await page.get_by_role("link", name="Next page").count():
                await page.get_by_role("link", name="Next page").click()
        assert keys == [f"N{number:03}" for number in range(60)]
        await expect(page.get_by_role("link", name="Next page")).to_have_count(0)
        await page.go_back()
        await expect(rows.first).to_have_text("N025")
        await page.get_by_role("link", name="First page").click()
        await expect(rows.first).to_have_text("N000")
        await page.get_by_role("link", name="N007").click()
        await expect(page.locator("#record").get_by_label("Value")).to_have_value('{\n  "n": 7\n}')


async def test_everything_is_reached_by_keyboard(browser: Browser, service: Service, http: httpx.AsyncClient) -> None:
    await put(http, "quiet", "typed", {"n": 1})
    async with looking(browser) as page:
        await page.goto(f"{service.url}/console")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        link = page.get_by_role("link", name="quiet", exact=True)
        await link.focus()
        seen = await page.locator("time").first.inner_text()
        await expect(page.locator("time").first).not_to_have_text(seen)  # the element with the link was replaced
        await expect(link).to_be_focused()
        await page.keyboard.press("Enter")
        await page.get_by_label("Key", exact=True).focus()
        await page.keyboard.type("typed")
        await page.keyboard.press("Enter")
        await expect(page.locator("#record").get_by_label("Value")).to_have_value('{\n  "n": 1\n}')


async def test_dark_is_dark_and_both_can_be_read(browser: Browser, service: Service) -> None:
    for dark in (False, True):
        async with looking(browser, dark=dark) as page:
            await page.goto(f"{service.url}/console")
            await expect(page.locator(".state.critical").first).to_be_visible()
            ground = await luminance(page, "body", "backgroundColor")
            assert (ground < 0.05) == dark
            assert contrast(await luminance(page, "body", "color"), ground) > 7
            assert contrast(await luminance(page, "header .quiet", "color"), ground) > 4.5
            behind = await luminance(page, "tr.critical > td", "backgroundColor")
            assert contrast(await luminance(page, ".state.critical", "color"), behind) > 4.5
            assert (await luminance(page, ".health", "backgroundColor") < 0.2) == dark


async def test_a_narrow_window_shows_all_without_scrolling_sideways(browser: Browser, service: Service) -> None:
    async with looking(browser, width=390) as page:
        for path in ("/console", "/console/tables/visits"):
            await page.goto(f"{service.url}{path}")
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390
            cells = await page.locator("table.tables td.number").evaluate_all(
                "all => all.map(one => one.getBoundingClientRect().right)"
            )
            assert max(cells, default=0) <= 390


async def test_an_unreachable_service_is_reported(browser: Browser, service: Service) -> None:
    async def fail(route: Any) -> None:
        await route.abort()

    async with await browser.new_context() as context:
        page = await context.new_page()
        page.set_default_timeout(WITHIN_MS)
        await page.goto(f"{service.url}/console")
        await page.route("**/live", fail)
        await expect(page.get_by_role("alert")).to_have_text("Connection lost: the page shows old data.")
        await page.unroute("**/live")
        await expect(page.get_by_role("alert")).to_be_hidden()


async def test_plots_are_drawn(browser: Browser, service: Service) -> None:
    async with looking(browser) as page:
        for path in ("/console", "/console/tables/cached"):
            await page.goto(f"{service.url}{path}")
            reads = page.locator(".plots .line.first").first
            await expect(reads).to_have_attribute("d", re.compile("M.*L"))
            latency = page.get_by_role("img", name=re.compile("^Latency, last 10 minutes: p50 .* now, p99"))
            await expect(latency.locator("text.row").last).to_have_text(re.compile("s$"))


async def luminance(page: Page, selector: str, member: str) -> float:
    """Return the WCAG relative luminance of a colour, in one call because the page replaces its elements."""
    colour = await page.evaluate(COLOUR, [selector, member])
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


async def test_screen_readers_can_read_every_page(browser: Browser, service: Service, http: httpx.AsyncClient) -> None:
    await put(http, "visits", "heard/1", {"n": 1})
    async with looking(browser) as page:
        for path in ("/console", "/console/tables/visits/record?k0=heard&k1=1", "/console/tables/visits/records"):
            await page.goto(f"{service.url}{path}")
            unnamed = await page.evaluate(NAMELESS)
            assert unnamed == []
            assert await page.locator("h1").count() == 1
            assert await page.locator("main").count() == 1
            assert await page.locator("html").get_attribute("lang") == "en"
            assert await page.locator("th:not([scope])").count() == 0
            assert await page.locator("svg:not([role=img]):not([aria-hidden=true])").count() == 0


NAMELESS = """() => [...document.querySelectorAll("input:not([type=hidden]), textarea, button, a, svg[role=img]")]
  .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()))
  .map((one) => one.outerHTML)"""
