"""Pages in a browser, with checks for console messages, script errors and requests to other hosts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, expect

WITHIN_MS = 60_000
"""The timeout for content of a page to appear, on a busy machine."""

expect.set_options(timeout=WITHIN_MS)


@asynccontextmanager
async def looking(browser: Browser, *, dark: bool = False, width: int = 1280) -> AsyncIterator[Page]:
    """Open a page. On exit, check that it logged nothing and sent no request to another host.

    A new context has no cookies and no storage, as a new profile has.
    """
    context = await browser.new_context(
        color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}
    )
    complaints: list[str] = []
    hosts: set[str | None] = set()
    page = await context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    page.set_default_timeout(WITHIN_MS)
    try:
        yield page
    finally:
        await context.close()
    assert complaints == []
    assert hosts - {None} == {"127.0.0.1"}  # a data: URL has no host
