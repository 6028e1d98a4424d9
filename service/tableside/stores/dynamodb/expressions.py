"""Builds DynamoDB's update expressions, where they mean exactly the same as the update, and condition expressions.

An update expression is equivalent only if the record has the expected structure: each object on a path and each array
to extend must exist and have that type. The write's condition checks this. All other updates are decided after reading
the record. Additions are never left to DynamoDB, which adds in decimal and without bounds.
"""

from collections.abc import Iterator

import msgspec

from ...core import Changes, Edits, Json, JsonObject, MergePatch, Path
from .attribute_values import Attribute, Item, to_attribute
from .items import DELETED, EXPIRES_MS, VERSION, ItemLayout

EXPRESSION_BYTES_MAX = 4096
NAMES_MAX = EXPRESSION_BYTES_MAX // 4
"""How many names an expression has room for, each with its `#`, a digit, a comma and a space."""

PATHS_MAX = 100
"""How many paths an update expression may contain: DynamoDB allows 300 operators, and a path may need two."""

CONDITIONS_MAX = 140
"""How many conditions an expression may join: each counts as an operator, and so does each AND."""

GUARDED_MEMBERS_MAX = 100
GUARDED_BYTES_MAX = 32 * 1024
"""Limits the members that a condition compares with the item that was read."""


class NativeUpdate(msgspec.Struct, frozen=True):
    """An update as paths: members to set and to remove, arrays to extend, and paths that must be objects."""

    sets: dict[Path, Json]
    removes: set[Path]
    appends: dict[Path, Json]
    objects: set[Path]

    def expression(self, layout: ItemLayout, version: str, expiry: Item | None, now_ms: int) -> Item | None:
        """Return the parameters of an UpdateItem call for a live record, or None if they exceed a limit of DynamoDB.

        `expiry` contains the expiry attributes to set, and the missing ones are removed. None changes none of them.
        Raise InvalidOperation for a number that DynamoDB cannot represent.
        """
        if len(self.sets) + len(self.removes) + len(self.appends) + len(self.objects) > PATHS_MAX:
            return None
        placeholders = Placeholders()
        sets = [
            f"{placeholders.path(path)} = {placeholders.value(to_attribute(member))}"
            for path, member in self.sets.items()
        ]
        sets += [
            f"{(name := placeholders.path(path))} = list_append({name}, {placeholders.value(to_attribute(elements))})"
            for path, elements in self.appends.items()
        ]
        sets.append(f"{placeholders.name(VERSION)} = {placeholders.value({'S': version})}")
        removes = [placeholders.path(path) for path in self.removes]
        if expiry is not None:
            for name in (layout.ttl_attribute, EXPIRES_MS):
                if name in expiry:
                    sets.append(f"{placeholders.name(name)} = {placeholders.value(expiry[name])}")
                else:
                    removes.append(placeholders.name(name))
        return placeholders.parameters(
            sets, removes, [*_live_conditions(placeholders, layout, now_ms), *self._structure_conditions(placeholders)]
        )

    def _structure_conditions(self, placeholders: "Placeholders") -> Iterator[str]:
        for path in self.objects:
            yield f"attribute_type({placeholders.path(path)}, {placeholders.value({'S': 'M'})})"
        for path in self.appends:
            yield f"attribute_type({placeholders.path(path)}, {placeholders.value({'S': 'L'})})"


def native_update(changes: Changes) -> NativeUpdate | None:
    """Return an update as paths, or None if no expression means exactly the same."""
    update = NativeUpdate({}, set(), {}, set())
    if len(changes) > 1:
        return None
    for change in changes:
        match change:
            case MergePatch(patch):
                _add_merge_patch(update, patch, ())
            case Edits():
                if not _add_edits(update, change):
                    return None
    return update


class Placeholders:
    """The names and values of an expression, which refers to them by placeholders such as `#0` and `:0`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Attribute] = {}

    def name(self, name: str) -> str:
        """Return the placeholder for an attribute's name, which may contain any character or be a reserved word."""
        return self._names.setdefault(name, f"#{len(self._names)}")

    def path(self, path: Path) -> str:
        """Return the placeholders for a path."""
        return ".".join(map(self.name, path))

    def value(self, attribute: Attribute) -> str:
        """Return the placeholder for a value."""
        placeholder = f":{len(self._values)}"
        self._values[placeholder] = attribute
        return placeholder

    def parameters(self, sets: list[str], removes: list[str], conditions: list[str]) -> Item | None:
        """Return the parameters of a call, or None if an expression exceeds a limit of DynamoDB."""
        if len(conditions) > CONDITIONS_MAX:
            return None
        update = " ".join(
            [*(["SET " + ", ".join(sets)] if sets else []), *(["REMOVE " + ", ".join(removes)] if removes else [])]
        )
        parameters: Item = {"ConditionExpression": " AND ".join(conditions)}  # type: ignore[dict-item]  # text
        if update:
            parameters["UpdateExpression"] = update  # type: ignore[assignment]  # text
        if any(len(text) > EXPRESSION_BYTES_MAX for text in parameters.values()):
            return None
        parameters["ExpressionAttributeNames"] = {placeholder: name for name, placeholder in self._names.items()}
        if self._values:
            parameters["ExpressionAttributeValues"] = self._values
        return parameters


def unchanged_conditions(placeholders: Placeholders, layout: ItemLayout, item: Item | None) -> list[str]:
    """Return the conditions that an item has not changed since it was read: its version, and members up to a limit."""
    if item is None:
        return [f"attribute_not_exists({placeholders.name(layout.keys[0].name)})"]
    version, deleted = placeholders.name(VERSION), placeholders.name(DELETED)
    conditions = [
        f"{version} = {placeholders.value(item[VERSION])}" if VERSION in item else f"attribute_not_exists({version})",
        f"attribute_{'' if DELETED in item else 'not_'}exists({deleted})",
    ]
    members = layout.members(item)
    if VERSION not in item:
        # Without a version, only the members show a write by another tool, so the condition contains as many as fit.
        guarded = dict(list(members.items())[:GUARDED_MEMBERS_MAX])
        conditions.append(f"attribute_exists({placeholders.name(layout.keys[0].name)})")
    else:
        guarded = members if _small_enough_to_guard(members) else {}
    return conditions + [
        f"{placeholders.name(name)} = {placeholders.value(attribute)}" for name, attribute in guarded.items()
    ]


def _small_enough_to_guard(members: Item) -> bool:
    return len(members) <= GUARDED_MEMBERS_MAX and len(msgspec.json.encode(members)) <= GUARDED_BYTES_MAX


def _live_conditions(placeholders: Placeholders, layout: ItemLayout, now_ms: int) -> Iterator[str]:
    """Yield the conditions that a record written by this service exists and does not expire within this second.

    An item without a version may not be a valid value, so it must be read before an update.
    """
    yield f"attribute_exists({placeholders.name(VERSION)})"
    yield f"attribute_not_exists({placeholders.name(DELETED)})"
    ttl, now = placeholders.name(layout.ttl_attribute), placeholders.value({"N": str(-(-now_ms // 1000))})
    yield f"(attribute_not_exists({ttl}) OR {ttl} > {now})"


def _add_merge_patch(update: NativeUpdate, patch: JsonObject, above: Path) -> None:
    for name, member in patch.items():
        path = (*above, name)
        if member is None:
            update.removes.add(path)
        elif isinstance(member, dict):
            update.objects.add(path)
            _add_merge_patch(update, member, path)
        else:
            update.sets[path] = member


def _add_edits(update: NativeUpdate, change: Edits) -> bool:
    if len(change.edits) > PATHS_MAX:
        return False
    for edit in change.edits:
        match edit.operator:
            case "$set":
                update.sets[edit.path] = edit.operand
            case "$unset":
                update.removes.add(edit.path)
            case "$push":
                update.appends[edit.path] = edit.operand
            case _:
                return False
        update.objects.update(edit.path[:length] for length in range(1, len(edit.path)))
    return True
