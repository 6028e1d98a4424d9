"""Describe the values that a JSON schema allows in a phrase for a table cell."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

Link: TypeAlias = Callable[[str], str]
"""Returns a link to the section of a named schema."""

ROW_CHARACTERS_MAX = 90
"""The maximum length of a list of values in a cell. A longer list is replaced by its number of values."""


def phrase(schema: Schema, link: Link) -> str:
    """Return a description of the allowed values: type and bounds, or the values themselves."""
    if "$ref" in schema:
        return link(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return _listed([code(value) for value in schema["enum"]])
    for combined in ("anyOf", "oneOf"):
        if combined in schema and "properties" not in schema:
            return _either([_with_type(part, schema) for part in schema[combined]], link)
    if "allOf" in schema:
        return phrase(schema["allOf"][0], link)
    return _of_type(schema, link)


def code(value: object) -> str:
    """Return a value in the form for a file or a request."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else "empty"


def row(*cells: str) -> str:
    """Return a row of a table, with line breaks and pipes in its cells escaped."""
    return "| " + " | ".join(cell.replace("\n", " ").replace("|", "\\|") for cell in cells) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join([row(*head), "|" + "---|" * len(head), *(row(*cells) for cells in rows)])


def _with_type(part: Schema, whole: Schema) -> Schema:
    """Add the type of the whole schema to a part without a type."""
    return {"type": whole["type"], **part} if "type" in whole and "$ref" not in part else part


def _either(parts: Sequence[Schema], link: Link) -> str:
    phrases = [phrase(part, link) for part in parts if part.get("type") != "null"]
    return " or ".join([*phrases, *(["null"] if len(phrases) < len(parts) else [])])


def _listed(values: Sequence[str]) -> str:
    joined = " or ".join(values)
    return joined if len(joined) <= ROW_CHARACTERS_MAX else f"one of {len(values)} words"


def _of_type(schema: Schema, link: Link) -> str:
    match schema.get("type"):
        case "array":
            return _join("list of " + phrase(schema.get("items", {}), link), _counted(schema, "Items"))
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return _join("by name: " + phrase(schema["additionalProperties"], link), _counted(schema, "Properties"))
        case "string" if schema.get("format") == "password":
            return "string, never shown"
        case "string":
            return _join("string", _characters(schema), _pattern(schema))
        case "integer" | "number" as kind:
            return _join(kind, _bounds(schema))
        case list() as kinds:
            return " or ".join(kinds)
        case None:
            return "anything"
        case kind:
            return str(kind)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _counted(schema: Schema, what: str) -> str:
    return _span(schema.get(f"min{what}"), schema.get(f"max{what}"))


def _characters(schema: Schema) -> str:
    span = _span(schema.get("minLength"), schema.get("maxLength"))
    return "not empty" if span == "at least 1" else f"{span} characters" if span else ""


def _pattern(schema: Schema) -> str:
    return f"`{schema['pattern']}`" if "pattern" in schema else schema.get("format", "")


def _bounds(schema: Schema) -> str:
    if "exclusiveMinimum" in schema:
        least = f"above {_number(schema['exclusiveMinimum'])}"
        return _join(least, _span(None, schema.get("maximum")))
    return _span(schema.get("minimum"), schema.get("maximum"))


def _span(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"{_number(least)} to {_number(most)}" if least != most else _number(least)
    if most is not None:
        return f"at most {_number(most)}"
    return f"at least {_number(least)}" if least is not None else ""


def _number(value: float) -> str:
    """Return a number with thousands separators: 9,223,372,036,854,775,807, and 0.5."""
    return f"{int(value):,}" if value == int(value) else str(value)
