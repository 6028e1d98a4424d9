"""The page of the HTTP interface, from the OpenAPI document of the service."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tableside.http import openapi
from tableside.http.wire import problems

from .bodies import schemas
from .phrases import code, phrase, table

HEAD = """\
# REST

All requests of the service, as in `/openapi.json` of a running service.
[The HTTP interface](../http.md) explains their semantics. Bodies are `application/json` unless another type is named.

This page is generated: `scripts/run python -m scripts.reference` renews it.
"""

Described = Mapping[str, Any]

REFUSED = 400
"""The lowest status of an error response."""

EVERYWHERE = {"X-Request-Id", "traceparent"}
"""Headers that every request may have."""

JSON = "application/json"
"""The media type of bodies for which the page names none."""

METHODS = ("get", "head", "put", "patch", "delete", "post")


@dataclass(frozen=True)
class Request:
    """A request: its method and path, its description, and its parameters and error codes."""

    method: str
    path: str
    operation: Described
    parameters: list[Described]

    @property
    def codes(self) -> list[str]:
        """The codes of its errors."""
        answers = self.operation["responses"].items()
        return [name for status, answer in answers if int(status) >= REFUSED for name in _reasons(answer)]

    @property
    def of_records(self) -> bool:
        """Whether it reads or writes records."""
        return "/{table}/" in self.path


@dataclass(frozen=True)
class Shared:
    """The parameters that several requests have in common, and the error codes that all requests for records have."""

    parameters: list[Described]
    codes: list[str]


def page() -> str:
    """Return the page."""
    described = openapi("")
    requests = list(_requests(described))
    shared = _shared(requests)
    parts = [*_common(shared), *_sections(described, requests, shared), *_codes()]
    return "\n".join([HEAD, *parts, *schemas(described["components"]["schemas"])])


def _requests(described: Described) -> Iterable[Request]:
    for path, item in described["paths"].items():
        for method in METHODS:
            if method in item:
                parameters = [*item.get("parameters", ()), *item[method].get("parameters", ())]
                yield Request(method, path, item[method], [_resolved(described, one) for one in parameters])


def _shared(requests: Sequence[Request]) -> Shared:
    every = [one for request in requests for one in request.parameters]
    parameters = [one for place, one in enumerate(every) if every.index(one) == place]
    of_records = [request.codes for request in requests if request.of_records]
    return Shared(
        [one for one in parameters if every.count(one) > 1],
        [code for code in of_records[0] if all(code in codes for codes in of_records)],
    )


def _common(shared: Shared) -> Iterable[str]:
    yield "## Parameters of several requests\n"
    yield "Each request names the ones that it accepts. Every request may have `X-Request-Id` and `traceparent`.\n"
    yield _parameters(shared.parameters)
    yield f"Every request for records may fail with these [errors](#errors): {', '.join(map(code, shared.codes))}.\n"


def _sections(described: Described, requests: Sequence[Request], shared: Shared) -> Iterable[str]:
    for tag in described["tags"]:
        yield f"## {tag['name'].capitalize()}\n\n{tag['description']}\n"
        for request in requests:
            if tag["name"] in request.operation["tags"]:
                yield from _request(request, shared)


def _request(request: Request, shared: Shared) -> Iterable[str]:
    operation = request.operation
    yield f"### {request.method.upper()} {request.path}\n\n{operation['summary']}.\n"
    if "description" in operation:
        yield f"{operation['description']}\n"
    names = [one["name"] for one in request.parameters if one in shared.parameters and one["name"] not in EVERYWHERE]
    if names:
        yield f"Parameters: {', '.join(map(code, names))}.\n"
    own = [one for one in request.parameters if one not in shared.parameters]
    if own:
        yield _parameters(own)
    if "requestBody" in operation:
        yield f"The body: {_content(operation['requestBody']['content'])}.\n"
    yield _answers(operation["responses"])
    codes = [name for name in request.codes if not request.of_records or name not in shared.codes]
    if codes:
        yield f"{'Other errors' if request.of_records else 'Errors'}: {', '.join(map(code, codes))}.\n"


def _answers(answers: Mapping[str, Described]) -> str:
    succeeded = {status: answer for status, answer in answers.items() if int(status) < REFUSED}
    columns = zip(*(_answer(status, answer) for status, answer in succeeded.items()), strict=True)
    filled = [column for column in zip(("status", "means", "headers", "body"), columns, strict=True) if any(column[1])]
    return table([head for head, _ in filled], list(zip(*(cells for _, cells in filled), strict=True))) + "\n"


def _resolved(described: Described, found: Described) -> Described:
    if "$ref" not in found:
        return found
    for name in found["$ref"].removeprefix("#/").split("/"):
        described = described[name]
    return described


def _parameters(parameters: Sequence[Described]) -> str:
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
    if "$ref" not in schema:
        return code(medium)
    return phrase(schema, _link) + ("" if medium == JSON else f" as {code(medium)}")


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
