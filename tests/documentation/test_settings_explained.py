"""A page explains every setting, in addition to the generated reference. Pages of stores also state the default."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.bootstrap import ROOT
from scripts.reference.settings import top_model
from tableside import stores

DOCS = ROOT / "docs"
EXPLAINED = "".join(
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("configuration", "policies", "security")
)
SHOWN_AS_A_WHOLE = {"stores", "tables"}

MODELS: dict[str, dict[str, Any]] = {"Settings": top_model().model_json_schema()}
MODELS |= MODELS["Settings"]["$defs"]


def defaults(text: str) -> Iterator[tuple[str, Any]]:
    """Return the options in the tables of a page, with their defaults if these are single values."""
    for name, default in re.findall(r"^\| `([\w.]+)` \| `?([\w.-]+)`? \|", text, re.MULTILINE):
        try:
            yield name, json.loads(default)
        except ValueError:
            yield name, default


def page_of(kind: str) -> Path:
    """Return the page of a kind of store. Kinds with few options share a page."""
    page = ROOT / "docs" / "stores" / f"{kind}.md"
    return page if page.exists() else ROOT / "docs" / "stores.md"


def options(kind: str) -> dict[str, Any]:
    backend = stores.backend_type(kind)
    models = [model.model_json_schema() for model in (backend.Settings, backend.TableOptions)]
    return {name: option for model in models for name, option in model.get("properties", {}).items()}


@pytest.mark.parametrize("title", MODELS)
def test_a_setting_is_explained(title: str) -> None:
    for name in MODELS[title].get("properties", {}).keys() - SHOWN_AS_A_WHOLE:
        assert re.search(rf"[`.]{name}[`:]", EXPLAINED), f"no page explains {name}"


@pytest.mark.parametrize("kind", stores.kinds())
def test_an_option_of_a_store_is_explained_with_its_default(kind: str) -> None:
    known, page = options(kind), page_of(kind)
    text = page.read_text(encoding="utf-8")
    for name in known:
        assert re.search(rf"^\|[^|]*`{name}`", text, re.MULTILINE), f"{page} does not explain {name}"
    for name, default in defaults(text):
        if name in known and default not in ("none", "first", "the", "those"):
            assert known[name].get("default") == default, name
