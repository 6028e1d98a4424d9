"""The bodies of requests and responses, with a section for each named schema."""

import json
from collections.abc import Iterable, Mapping

from .phrases import Schema, phrase

SHARED_MEMBERS = 3
"""If at least this many members of a schema are those of an earlier one, its section refers to that one."""


def schemas(found: Mapping[str, Schema]) -> Iterable[str]:
    """Return the sections of all schemas."""
    yield "## Bodies\n"
    yield "The bodies of the requests and responses above, by name.\n"
    for position, (name, schema) in enumerate(found.items()):
        yield from _schema(name, schema, dict(list(found.items())[:position]))


def _schema(name: str, schema: Schema, earlier: Mapping[str, Schema]) -> Iterable[str]:
    yield f"### Schema {name}\n"
    if "description" in schema:
        yield f"{schema['description']}\n"
    if schema.get("properties"):
        yield _members(schema, earlier)
    elif schema.get("type") != "object":
        yield f"It is: {phrase(schema, _link)}.\n"
    for example in schema.get("examples", ()):
        yield f"```json\n{json.dumps(example, ensure_ascii=False)}\n```\n"


def _members(schema: Schema, earlier: Mapping[str, Schema]) -> str:
    like, shared = _most_similar(schema, earlier)
    lines = [_member(name, schema) for name in schema["properties"] if name not in shared]
    if shared:
        lines.append(f"* as in {_link(like)}: {', '.join(f'`{name}`' for name in shared)}")
    return "\n".join(lines) + "\n"


def _most_similar(schema: Schema, earlier: Mapping[str, Schema]) -> tuple[str, list[str]]:
    """Return the earlier schema with the most members of this one, and these members, or none if they are few."""
    members = set(map(repr, _facts(schema)))
    common = {
        name: [member for member, *rest in _facts(other) if repr((member, *rest)) in members]
        for name, other in earlier.items()
    }
    like = max(common, key=lambda name: len(common[name]), default="")
    return (like, common[like]) if like and len(common[like]) >= SHARED_MEMBERS else ("", [])


def _facts(schema: Schema) -> list[tuple[str, Schema, bool]]:
    required = schema.get("required", ())
    return [(name, member, name in required) for name, member in schema.get("properties", {}).items()]


def _member(name: str, schema: Schema) -> str:
    member = schema["properties"][name]
    kind = phrase(member, _link) + ("" if name in schema.get("required", ()) else "; optional")
    return f"* `{name}` ({kind})" + (f": {member['description']}" if "description" in member else "")


def _link(name: str) -> str:
    return f"[{name}](#schema-{name.lower()})"
