"""Assembles the OpenAPI document from its files in YAML, and expands the abbreviations in `paths.yaml`."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import yaml

from ..wire import problems

Fragment: TypeAlias = dict[str, Any]
"""A part of the document, as JSON."""


def document(version: str) -> Fragment:
    """Return the OpenAPI document of the service."""
    found = _document()
    return {**found, "info": {**found["info"], "version": version}}


@cache
def _document() -> Fragment:
    document, components = _read("document"), _read("components")
    document["paths"] = {path: _path(item, components) for path, item in _read("paths")["paths"].items()}
    document["components"] |= {
        "schemas": _read("schemas"),
        "parameters": {name: {"name": name, **one} for name, one in components["parameters"].items()},
        "headers": components["headers"],
    }
    return document


def _read(name: str) -> Fragment:
    text = files(__package__).joinpath(f"{name}.yaml").read_text("utf-8")
    found: Fragment = yaml.load(text, yaml.CSafeLoader)
    return found


def _path(item: Fragment, components: Fragment) -> Fragment:
    described = {method: _operation(method, one, components) for method, one in item.items() if method != "parameters"}
    return {**described, "parameters": _parameters([*item.get("parameters", []), "X-Request-Id", "traceparent"])}


def _operation(method: str, operation: Fragment, components: Fragment) -> Fragment:
    found = {**operation, "responses": _responses(operation, components)}
    found.pop("errors", None)
    if "parameters" in found:
        found["parameters"] = _parameters(found["parameters"])
    if method == "head":
        for response in found["responses"].values():
            response.pop("content", None)
    return found


def _parameters(given: Iterable[str | Fragment]) -> list[Fragment]:
    return [{"$ref": f"#/components/parameters/{one}"} if isinstance(one, str) else one for one in given]


def _responses(operation: Fragment, components: Fragment) -> Fragment:
    found = dict(operation["responses"])
    for status, codes in _by_status(_codes(operation.get("errors", []), components["error_groups"])).items():
        found[str(status)] = _error(status, codes, found.get(str(status), {}), components)
    return {status: {**one, "headers": _headers(one.get("headers", []))} for status, one in sorted(found.items())}


def _codes(given: Iterable[str], groups: Mapping[str, list[str]]) -> list[str]:
    """Return the codes of errors, with the groups among them expanded."""
    return [code for one in given for code in (_codes(groups[one], groups) if one in groups else [one])]


def _by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for code in codes:
        found.setdefault(problems.STATUS[code], []).append(code)
    return dict(sorted(found.items()))


def _error(status: int, codes: Iterable[str], given: Fragment, components: Fragment) -> Fragment:
    return {
        "description": "; ".join(f"`{code}`: {components['errors'][code]}" for code in codes),
        "headers": [*components["error_headers"].get(status, []), *given.get("headers", [])],
        "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _headers(names: Iterable[str]) -> Fragment:
    """Return references to headers, including X-Request-Id, which every response has."""
    references = {name: {"$ref": f"#/components/headers/{name}"} for name in (*names, "X-Request-Id")}
    return {name.partition("-If-")[0]: reference for name, reference in references.items()}
