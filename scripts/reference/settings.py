"""The page of the settings, from the models that validate a configuration."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, create_model

from tableside import stores
from tableside.settings import Settings

from .phrases import Schema, code, phrase, table

HEAD = """\
# Settings

The type, bounds and default of every member of a configuration.
The end of a name is its unit: seconds (`_s`), a second (`per_s`), or bytes.
[Configuration](../configuration.md), [Policies](../policies.md) and [Stores](../stores.md) explain the members.

This page is generated: `scripts/run python -m scripts.reference` renews it.
"""

NOT_IN_THE_FILE = {"options"}
"""Fields of a validated configuration that are not members of the file."""

OF_ITS_KIND = {"additionalProperties": True, "type": "object"}
"""The schema of members that depend on the kind of store."""


@dataclass
class Section:
    """A model, and the paths in the file that use it."""

    title: str
    model: Schema
    places: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The heading of the section: all paths of the model."""
        return ", ".join(self.places)

    @property
    def anchor(self) -> str:
        """The anchor of the section."""
        return re.sub(r"[^\w\s-]", "", self.heading.lower()).strip().replace(" ", "-")


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_top(), *_stores()])


def _top() -> Iterable[str]:
    schema = top_model().model_json_schema()
    sections = {title: Section(title, model) for title, model in schema.get("$defs", {}).items()}
    _place(schema, "", sections)
    whole = Section("Settings", schema, ["At the top"])
    for section in [whole, *_in_order(schema, sections)]:
        yield _section("##", section, sections)


def top_model() -> type[BaseModel]:
    """Return a model of the whole file, without details of stores: each kind of store has a separate section."""
    members: dict[str, Any] = {"stores": (dict[str, dict[str, Any]], ...)}
    for name in ("tables", *Settings.model_fields):
        if name not in NOT_IN_THE_FILE | members.keys():
            members[name] = (Settings.model_fields[name].annotation, Settings.model_fields[name])
    return create_model("Settings", **members)


def _place(schema: Schema, path: str, sections: Mapping[str, Section]) -> None:
    """Record the paths of each model by following the members that refer to it."""
    for name, member in schema.get("properties", {}).items():
        for title, suffix in _references(member):
            place = f"{path}{name}{suffix}"
            if place not in sections[title].places:
                sections[title].places.append(place)
                _place(sections[title].model, f"{place}.", sections)


def _in_order(schema: Schema, sections: Mapping[str, Section]) -> Iterable[Section]:
    """Return the sections in the order of the file: each after the first section that refers to it."""
    titles = list(dict.fromkeys(title for title, _ in _references([*schema["properties"].values()])))
    for title in titles:
        nested = [more for more, _ in _references([*sections[title].model.get("properties", {}).values()])]
        titles += [more for more in dict.fromkeys(nested) if more not in titles]
    return [sections[title] for title in titles]


def _references(member: object, suffix: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(member, list):
        for part in member:
            yield from _references(part, suffix)
    if isinstance(member, dict):
        if "$ref" in member:
            yield member["$ref"].rpartition("/")[2], suffix
        for name, part in member.items():
            more = {"items": "[]", "additionalProperties": ".NAME"}.get(name, "")
            yield from _references(part, suffix + more)


def _stores() -> Iterable[str]:
    yield "## Stores, by kind\n"
    yield "The members of `stores.NAME` besides `kind`, and the additional members of a table in such a store.\n"
    for kind in stores.kinds():
        backend = stores.backend_type(kind)
        yield f"### {kind}\n"
        for title, model in (("the store", backend.Settings), ("a table", backend.TableOptions)):
            if model.model_fields:
                schema = model.model_json_schema()
                nested = {name: Section(name, found) for name, found in schema.get("$defs", {}).items()}
                _place(schema, f"{kind}, {title}: ", nested)
                yield f"Options of {title}:\n\n{_members(schema, nested)}"
                yield from (_section("####", section, nested) for section in nested.values())
            else:
                yield f"Options of {title}: none.\n"


def _section(level: str, section: Section, sections: Mapping[str, Section]) -> str:
    return f"{level} {section.heading}\n\n{_members(section.model, sections)}"


def _members(model: Schema, sections: Mapping[str, Section]) -> str:
    members: Mapping[str, Schema] = model.get("properties", {})
    required = set(model.get("required", ()))
    rows = [
        (f"`{name}`", _type(member, sections), "required" if name in required else _shown(member))
        for name, member in members.items()
    ]
    return f"{table(('member', 'type', 'default'), rows)}\n"


def _type(member: Schema, sections: Mapping[str, Section]) -> str:
    if member.get("additionalProperties") == OF_ITS_KIND:
        return "by name: [by kind](#stores-by-kind)"
    without_null = {**member, "anyOf": [part for part in member.get("anyOf", ()) if part.get("type") != "null"]}
    return phrase(
        without_null if without_null["anyOf"] else member,
        lambda title: f"[below](#{sections[title].anchor})",
    )


def _shown(member: Schema) -> str:
    match member.get("default"):
        case None | [] | dict():
            return ""
        case float() as value if value == int(value):
            return code(int(value))
        case value:
            return code(value)
