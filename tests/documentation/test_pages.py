"""The documentation's site builds without network access or broken links, and generated files are up to date."""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Page, async_playwright, expect

import tableside_client
import tableside_spark
from scripts.bootstrap import ROOT
from scripts.figures import figure
from scripts.reference import references
from servers import chromium
from servers.process import HOST, Server, accepts_connections, free_port, running
from tableside.http.wire.problems import CODES

PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
BUILD = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
BROWSER_S = 60
COLOUR = re.compile(r"\x1b\[[\d;]*m")


def navigation() -> list[object]:
    found: list[object] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return found


def named(nav: object) -> list[str]:
    """Return the pages in a part of the navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, Mapping) else nav
    assert isinstance(parts, Iterable)
    return [page for part in parts for page in named(part)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of its sources. The build fails for a broken link."""
    root = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / "docs", root / "docs")
    shutil.copytree(ROOT / "spark_client", root / "spark_client", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", root)
    done = subprocess.run(BUILD, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, COLOUR.sub("", done.stderr)
    return root / "site"


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", "helm/README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"]
)
def test_links_of_pages_outside_the_site_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"\w+:|#", link):
            assert (ROOT / page).parent.joinpath(link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("name", figure.NAMES)
def test_a_page_shows_each_figure_with_a_description(name: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs" / page for page in PAGES)]
    assert any(re.search(rf"!\[[^]]+\]\([^)]*images/{name}\.svg\)", page.read_text()) for page in pages)


def test_the_navigation_contains_every_page_once() -> None:
    assert sorted(named(navigation())) == PAGES


async def _search(page: Page, words: str) -> None:
    """Type into the search as soon as the page's script accepts input, and wait for the results."""
    field = page.locator("input:visible")
    async with asyncio.timeout(BROWSER_S):
        while not await field.count():
            await page.keyboard.press("Control+k")
            await page.wait_for_timeout(300)
    await field.first.fill(words)
    await expect(page.get_by_text("results").first).to_be_visible(timeout=BROWSER_S * 1000)


@pytest.mark.daily
@pytest.mark.browser
async def test_a_browser_loads_nothing_from_other_hosts_even_in_searches(site: Path, tmp_path: Path) -> None:
    program, asked, port = chromium.chromium(), list[str](), free_port()
    url, serve = f"http://{HOST}:{port}", [sys.executable, "-m", "http.server", str(port), "--bind", HOST]
    with running(Server("site", serve, lambda: accepts_connections(port), directory=site), tmp_path):
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(
                executable_path=program, args=[*chromium.ARGUMENTS], chromium_sandbox=False
            )
            page = await browser.new_page()
            page.set_default_timeout(BROWSER_S * 1000)
            page.on("request", lambda request: asked.append(request.url))
            for name in PAGES:
                await page.goto(f"{url}/{name.removesuffix('.md')}.html")
            await _search(page, "retry_budget")
            await browser.close()
    assert len(asked) > len(PAGES)
    assert [address for address in asked if not address.startswith((url, "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def stale() -> list[str]:
    """The generated files that are out of date. To find them, all are generated."""
    return references.stale()


@pytest.mark.parametrize("name", references.PAGES)
def test_a_generated_file_is_up_to_date(name: str, stale: list[str]) -> None:
    assert name not in stale, f"{name} is out of date: renew it by `scripts/run python -m scripts.reference`"


@pytest.mark.server
def test_every_public_name_of_the_client_is_described(site: Path) -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    said = re.findall(r"^::: (tableside_(?:spark|client)\.\S+)$", page, re.MULTILINE)
    for package in (tableside_spark, tableside_client):
        assert {f"{package.__name__}.{name}" for name in package.__all__} <= {*said, "tableside_client.Retries"}
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in said:
        assert f'id="{name}"' in text
    assert "and add the members of the record as columns" in text


METRICS = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
NO_METRICS = {"tableside_cli", "tableside_client", "tableside_spark", "tableside_files"}
"""Names of packages, which start like metrics."""


@pytest.mark.parametrize("page", [page for page in PAGES if page != "observability.md"])
def test_metrics_named_on_pages_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    said = set(re.findall(r"`(tableside_\w+[a-z])", text)) - NO_METRICS
    assert [name for name in said if f"`{name.removesuffix('_total')}`" not in METRICS] == []


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_line_precedes_every_list(page: str) -> None:
    """Without it, the site shows no list. For nested lists, the site also requires an indentation by 4."""
    prose = re.sub(
        r"^( *)```.*?^\1```$", "", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    marked = r"(?:[*-]|\d+\.) "
    assert re.findall(rf"^(?!{marked}|[ #\n]).*\n{marked}.*", prose, re.MULTILINE) == []
    assert re.findall(rf"^ {{1,3}}{marked}.*", prose, re.MULTILINE) == []


@pytest.mark.parametrize("code", CODES)
def test_the_page_on_http_has_every_error_code(code: str) -> None:
    status, meaning = CODES[code]
    assert f"| `{code}` | {status} | {meaning} |" in (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
