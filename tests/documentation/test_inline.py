"""Names in the text of pages exist: verbs and their options, scripts, extras, files and settings."""

import importlib.util
import json
import os
import re
import tomllib

import pytest

from documentation.blocks import pages
from documentation.verbs import options_of, words
from scripts.bootstrap import ROOT
from scripts.reference.settings import top_model

SECTIONS = "auth|batch|cache|console|limits|logs|read|retry_budget|traces|write"
SCHEMA = top_model().model_json_schema()
FILES = r"(?:docs|helm|tests|scripts|service|spark_client|bench|examples)/[\w./-]+\.\w+"
MODULE = r"[a-z_]+(?:/[a-z_]+)+\.py"
PACKAGES = (ROOT, ROOT / "service" / "tableside", ROOT / "spark_client")


def inline(page: str) -> list[str]:
    """Return the code spans in the text of a page. Other tests check its blocks."""
    text = re.sub(r"^( *)```.*?^\1```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]


@pytest.mark.parametrize("page", pages())
def test_named_verbs_and_their_options_exist(page: str) -> None:
    for code in inline(page):
        found = words(code)
        if len(found) > 1 and found[0] == "tableside" and found[1].isalpha() and found[1].islower():
            given = {word.partition("=")[0] for word in found if word.startswith("--")}
            assert given <= options_of(found[1:]) | {"--help"}, code


@pytest.mark.parametrize("page", pages())
def test_named_scripts_modules_and_files_exist(page: str) -> None:
    for code in inline(page):
        found = words(code)
        if found and found[0].startswith("scripts/"):
            assert os.access(ROOT / found[0], os.X_OK), code
        if found[:2] == ["python", "-m"] and len(found) > 2:
            assert importlib.util.find_spec(found[2]), code
        if re.fullmatch(FILES, code):
            assert (ROOT / code).exists(), code
        if re.fullmatch(MODULE, code):
            assert any((package / code).is_file() for package in PACKAGES), code


@pytest.mark.parametrize("page", pages())
def test_named_extras_exist(page: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"tableside\[([\w,]+)\]", (ROOT / page).read_text(encoding="utf-8")):
        assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def members(section: str) -> set[str]:
    """Return the settings in a section of the configuration or of a table."""
    models = [SCHEMA, *SCHEMA["$defs"].values()]
    found = [json.dumps(model["properties"][section]) for model in models if section in model.get("properties", {})]
    names = {name for text in found for name in re.findall(r"#/\$defs/(\w+)", text)}
    return {member for name in names for member in SCHEMA["$defs"][name]["properties"]}


@pytest.mark.parametrize("page", pages())
def test_named_settings_exist(page: str) -> None:
    for code in inline(page):
        if match := re.match(rf"({SECTIONS})\.(\w+)(?::|$)", code):
            assert match[2] in members(match[1]), code


def test_named_environment_variables_are_used() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("service", "spark_client", "helm", "examples", "scripts")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yaml", ".tpl", "") and path.is_file()
    )
    for page in pages():
        for name in re.findall(r"\bTABLESIDE_[A-Z_]+[A-Z]\b", (ROOT / page).read_text(encoding="utf-8")):
            assert name in source, f"{page} names {name}"
