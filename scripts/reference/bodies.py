"""The bodies of requests and responses, with a section for each named schema."""

import json
from collections.abc import Iterable, Mapping

from .phrases import Schema, phrase, table


def schemas(found: Mapping[str, Schema]) -> Iterable[str]:
    """Return the sections of all schemas."""
    yield "## Bodies\n"
    yield "The bodies of the requests and responses above, by name.\n"
    for name, schema in found.items():
        yield from _schema(name, schema)


def _schema(name: str, schema: Schema) -> Iterable[str]:
    yield f"### Schema {name}\n"
    if "description" in schema:
        yield f"{schema['description']}\n"
    if schema.get("properties"):
        yield _members(schema)
    else:
        yield f"It is: {phrase(schema, _link)}.\n"
    for example in schema.get("examples", ()):
        yield f"```json\n{json.dumps(example, ensure_ascii=False)}\n```\n"


def _members(schema: Schema) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (f"`{name}`", phrase(member, _link), "yes" if name in required else "", member.get("description", ""))
        for name, member in schema["properties"].items()
    ]
    described = any(means for *_, means in rows)
    columns = ("member", "type", "required", "means") if described else ("member", "type", "required")
    return table(columns, [cells[: len(columns)] for cells in rows]) + "\n"


def _link(name: str) -> str:
    return f"[{name}](#schema-{name.lower()})"
