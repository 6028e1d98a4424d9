"""The part of the chart's `values.schema.json` that validates `config`, from the models of the configuration.

It accepts what `tableside check` accepts, except booleans that are not `true` or `false`, such as 1. A text with a
variable such as `${NAME}` is accepted everywhere, and so are stores of plug-ins and the options of their tables.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from tableside import stores
from tableside.settings import NAME

from ..bootstrap import ROOT
from .phrases import Schema
from .settings import top_model

FILE = "helm/values.schema.json"
PREFIX = "config."
"""The start of the names of generated definitions."""

ANNOTATIONS = {"default", "description", "format", "title", "writeOnly"}
CONSTRAINTS = {"enum", "maxLength", "minLength", "pattern"}
VARIABLE = {"type": "string", "pattern": r"\$\{"}
QUOTED = {"type": "string", "pattern": r"\$\{|^[-+0-9.eE]+$|^(true|false)$"}
"""Quoted numbers and booleans, which the service accepts too."""


def page() -> str:
    """Return the content of the file: the handwritten parts as they are, and each definition for `config` in a line."""
    schema = json.loads((ROOT / FILE).read_text(encoding="utf-8"))
    definitions = schema.pop("$defs")
    kept = {name: node for name, node in definitions.items() if not name.startswith(PREFIX)}
    text = json.dumps({**schema, "$defs": kept}, indent=2, ensure_ascii=False)
    lines = [f'    "{PREFIX}{name}": {json.dumps(node)}' for name, node in _definitions().items()]
    return ",\n".join([text.removesuffix("\n  }\n}"), *lines]) + "\n  }\n}\n"


def _definitions() -> dict[str, Schema]:
    """Return the definitions for a configuration. `file` is the whole file."""
    whole = _schema(top_model())
    kinds = {kind: stores.backend_type(kind) for kind in stores.kinds()}
    found: dict[str, Any] = {name: _slim(node) for name, node in whole.pop("$defs").items()}
    table = found["TableSettings"]
    for backend in kinds.values():
        table["properties"] |= _slim(_schema(backend.TableOptions)).get("properties", {})
    del table["additionalProperties"]  # plug-ins may add options
    found["file"] = _file(_slim(whole)["properties"], [*kinds], [*table["properties"]])
    found["store"] = _store({kind: _slim(_schema(backend.Settings)) for kind, backend in kinds.items()})
    return found | {"variable": VARIABLE, "quoted": QUOTED}


def _file(members: Schema, kinds: list[str], options: list[str]) -> Schema:
    """Return the schema of a file. Tables have no other `options` if there are no stores of other `kinds`."""
    names = {"type": "object", "propertyNames": {"pattern": NAME}}
    tables = {"additionalProperties": {"properties": dict.fromkeys(options, True), "additionalProperties": False}}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **members,
            "stores": {**names, "minProperties": 1, "additionalProperties": _reference("store")},
            "tables": {**names, "additionalProperties": _reference("TableSettings")},
        },
        "if": _member("stores", {"additionalProperties": _member("kind", {"enum": kinds})}),
        "then": _member("tables", tables),
    }


def _store(kinds: Mapping[str, Schema]) -> Schema:
    """Return the schema of a store. Its members depend on the kind, unless a plug-in provides that."""
    cases = []
    for kind, node in kinds.items():
        then = {**node, "properties": {"kind": True, **node["properties"]}}
        cases.append({"if": {**_member("kind", {"const": kind}), "required": ["kind"]}, "then": then})
    return {"type": "object", **_member("kind", {"type": "string"}), "required": ["kind"], "allOf": cases}


def _member(name: str, node: Schema) -> Schema:
    return {"properties": {name: node}}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{PREFIX}{name}"}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(ref_template=f"#/$defs/{PREFIX}{{model}}")


def _slim(node: Schema) -> dict[str, Any]:
    """Return a schema without annotations that accepts variables in place of values."""
    slim = {name: value for name, value in node.items() if name not in ANNOTATIONS}
    if "properties" in slim:
        slim["properties"] = {name: _slim(member) for name, member in slim["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(slim.get(name), dict):
            slim[name] = _slim(slim[name])
    match slim:
        case {"anyOf": [part, {"type": "null"}]}:
            return _unless({"type": "null"}, _slim(part))
        case {"anyOf": parts}:
            return {"anyOf": [_slim(part) for part in parts]}
        case {"type": "integer" | "number" | "boolean"}:
            return _unless(_reference("quoted"), slim)
        case {"type": "string"} if slim.keys() & CONSTRAINTS:
            return _unless(_reference("variable"), slim)
    return slim


def _unless(exception: Schema, node: Schema) -> dict[str, Any]:
    """Return a schema with an exception. Unlike `anyOf`, its errors name only what `node` requires."""
    return {"if": exception, "else": node}
