"""The generated page, figures and schema of the chart, their generators, and checks whether they are up to date."""

from collections.abc import Callable
from functools import partial

from ..bootstrap import ROOT
from ..figures import figure
from . import settings, values_schema

PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/settings.md": settings.page,
    values_schema.FILE: values_schema.page,
    **{f"docs/images/{name}.svg": partial(figure.svg, name) for name in figure.NAMES},
}


def stale() -> list[str]:
    """Return the names of the outdated pages."""
    return [name for name, page in PAGES.items() if _text(name) != page()]


def write() -> list[str]:
    """Write the outdated pages and return their names."""
    names = stale()
    for name in names:
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
    return names


def _text(name: str) -> str | None:
    file = ROOT / name
    return file.read_text(encoding="utf-8") if file.exists() else None
