"""The figures: their texts fit, both color schemes define the same colors, and a page shows each of them."""

import re
from pathlib import Path

import pytest

from scripts.bootstrap import ROOT
from scripts.figures import figure

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BOX = "title: t\nwidth: 200\nheight: 100\nboxes:\n  a: {at: [10, 10, 80, 40], kind: store, text: %s}\n"


def drawn(source: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    (folder / "one.yaml").write_text(source, encoding="utf-8")
    monkeypatch.setattr(figure, "SOURCES", folder)
    return figure.svg("one")


def test_a_text_that_its_box_would_cut_off_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ">short<" in drawn(BOX % "short", monkeypatch, tmp_path)
    with pytest.raises(ValueError, match=r"'too long a text'.* pixels, and its box has 80"):
        drawn(BOX % "too long a text", monkeypatch, tmp_path)


def test_the_dark_scheme_changes_every_color() -> None:
    light, dark = figure.STYLE.split("@media (prefers-color-scheme: dark)")
    dark, rules = dark.split("} }")

    def colors(text: str) -> dict[str, str]:
        return dict(re.findall(r"(--\w+): (#\w{6})", text))

    assert colors(light).keys() == colors(dark).keys() == set(re.findall(r"var\((--\w+)\)", rules))
    assert not colors(light).items() & colors(dark).items()


@pytest.mark.parametrize("name", figure.NAMES)
def test_a_page_shows_each_figure_with_a_description(name: str) -> None:
    shown = [page for page in PAGES if re.search(rf"!\[[^]]+\]\([^)]*images/{name}\.svg\)", page.read_text())]
    assert shown
