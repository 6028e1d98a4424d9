"""The page of the HTTP interface, from the OpenAPI document of the service."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tableside.http import openapi
from tableside.http.wire import problems

from .bodies import schemas
from .phrases import code, phrase, table

HEAD = """\
# REST

All requests of the service, as in `/openapi.json` of a running service.
[The HTTP interface](../http.md) explains their semantics.

This page is generated: `scripts/run python -m scripts.reference` renews it.
"""

Described = Mapping[str, Any]

COMMON = {"X-Request-Id", "traceparent"}
"""Headers that every request may have, described only once."""

REFUSED = 400
"""The lowest status of an error response."""

METHODS = ("get", "head", "put", "patch", "delete", "post")


def page() -> str:
    """Return the page."""
    described = openapi("")
    parts = [_common(described), *_requests(described), *_codes()]
    return "\n".join([HEAD, *parts, *schemas(described["components"]["schemas"])])


def _common(described: Described) -> str:
    found = [one for name, one in described["components"]["parameters"].items() if name in COMMON]
    text = "Every request may have these headers. The response has `X-Request-Id`."
    return f"## Every request\n\n{text}\n\n{_parameters(found)}"


def _requests(described: Described) -> Iterable[str]:
    for tag in described["tags"]:
        yield f"## {tag['name'].capitalize()}\n\n{tag['description']}\n"
        for path, item in described["paths"].items():
            for method in METHODS:
                if method in item and tag["name"] in item[method]["tags"]:
                    yield from _request(described, path, method, item)


def _request(described: Described, path: str, method: str, item: Described) -> Iterable[str]:
    operation = item[method]
    yield f"### {method.upper()} {path}\n\n{operation['summary']}.\n"
    if "description" in operation:
        yield f"{operation['description']}\n"
    parameters = [_resolved(described, one) for one in [*item.get("parameters", ()), *operation.get("parameters", ())]]
    yield _parameters([one for one in parameters if one["name"] not in COMMON])
    if "requestBody" in operation:
        yield f"The body: {_content(operation['requestBody']['content'])}.\n"
    answers = operation["responses"]
    rows = [_answer(status, answer) for status, answer in answers.items() if int(status) < REFUSED]
    yield table(("status", "means", "headers", "body"), rows) + "\n"
    refused = [answer for status, answer in answers.items() if int(status) >= REFUSED]
    codes = [name for answer in refused for name in _reasons(answer)]
    if codes:
        yield f"Or an [error](#errors): {', '.join(map(code, codes))}.\n"


def _resolved(described: Described, found: Described) -> Described:
    if "$ref" not in found:
        return found
    for name in found["$ref"].removeprefix("#/").split("/"):
        described = described[name]
    return described


def _parameters(parameters: list[Described]) -> str:
    if not parameters:
        return ""
    rows = [(f"`{one['name']}`", one["in"], phrase(one["schema"], _link), one["description"]) for one in parameters]
    return table(("parameter", "in", "type", "means"), rows) + "\n"


def _answer(status: str, answer: Described) -> tuple[str, str, str, str]:
    names = [name for name in answer.get("headers", {}) if name != "X-Request-Id"]
    return status, answer["description"], ", ".join(map(code, names)), _content(answer.get("content", {}))


def _content(content: Described) -> str:
    return ", or ".join(_medium(medium, one["schema"]) for medium, one in content.items())


def _medium(medium: str, schema: Described) -> str:
    if medium == problems.MEDIA_TYPE:
        return f"a {_link('Problem')}"
    return f"{phrase(schema, _link)} as `{medium}`" if "$ref" in schema else f"`{medium}`"


def _codes() -> Iterable[str]:
    yield "## Errors\n"
    yield f"An answer with a status of 400 or more is a {_link('Problem')} as `{problems.MEDIA_TYPE}`. Its `code`:\n"
    rows = [(code(name), str(status), meaning) for name, (status, meaning) in problems.CODES.items()]
    yield table(("code", "status", "means"), rows) + "\n"


def _reasons(answer: Described) -> dict[str, str]:
    """Return the error codes in the description of a response, with the description of each."""
    found = (re.fullmatch(r"`(\w+)`: (.*)", part) for part in re.split(r"; (?=`\w+`: )", answer["description"]))
    return {match[1]: match[2] for match in found if match}


def _link(name: str) -> str:
    return f"[{name}](#schema-{name.lower()})"
