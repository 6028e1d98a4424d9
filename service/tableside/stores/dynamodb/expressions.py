"""Updates as DynamoDB's own expressions, where these do exactly what the update language says; and conditions.

An expression means the same only while the record is as it expects: each object on a path is there and is one, each
array that grows is one. That is the write's condition, so the rest is decided where the record is read first. Numbers
are never added by DynamoDB, which does so in decimal and without end. Knows nothing of calls.
"""

from collections.abc import Iterator

import msgspec

from ...core import Changes, Edits, Json, JsonObject, MergePatch, Path
from .attribute_values import Attribute, Item, to_attribute
from .items import DELETED, EXPIRES_MS, VERSION, Layout

EXPRESSION_BYTES_MAX = 4096
TERMS_MAX = 100
"""How many paths an update by expression may name; DynamoDB counts 300 operators, and a path may need two."""

CONDITIONS_MAX = 140
"""How many conditions one expression may join: each is an operator, and so is what joins it to the next."""

GUARDED_MEMBERS_MAX = 100
GUARDED_BYTES_MAX = 32 * 1024
"""How much of what was read a condition repeats."""


class Native(msgspec.Struct, frozen=True):
    """What an update comes to: paths to set and to remove, arrays to lengthen, and paths that must be objects."""

    sets: dict[Path, Json]
    removes: set[Path]
    appends: dict[Path, Json]
    objects: set[Path]

    def expression(self, layout: Layout, version: str, expiry: Item | None, now_ms: int) -> Item | None:
        """Return the parameters of an UpdateItem of a live record; None if it is too long for one.

        `expiry` holds the attributes to set; those of it that are missing are removed; None leaves all as they are.
        Raise InvalidOperation for a number that DynamoDB has not.
        """
        if len(self.sets) + len(self.removes) + len(self.appends) + len(self.objects) > TERMS_MAX:
            return None
        terms = Terms()
        sets = [f"{terms.path(path)} = {terms.value(to_attribute(member))}" for path, member in self.sets.items()]
        sets += [
            f"{(name := terms.path(path))} = list_append({name}, {terms.value(to_attribute(elements))})"
            for path, elements in self.appends.items()
        ]
        sets.append(f"{terms.name(VERSION)} = {terms.value({'S': version})}")
        removes = [terms.path(path) for path in self.removes]
        if expiry is not None:
            for name in (layout.ttl_attribute, EXPIRES_MS):
                if name in expiry:
                    sets.append(f"{terms.name(name)} = {terms.value(expiry[name])}")
                else:
                    removes.append(terms.name(name))
        return terms.parameters(sets, removes, [*_live(terms, layout, now_ms), *self._shape(terms)])

    def _shape(self, terms: "Terms") -> Iterator[str]:
        for path in self.objects:
            yield f"attribute_type({terms.path(path)}, {terms.value({'S': 'M'})})"
        for path in self.appends:
            yield f"attribute_type({terms.path(path)}, {terms.value({'S': 'L'})})"


def native(changes: Changes) -> Native | None:
    """Return what an update comes to; None if no expression means exactly that."""
    found = Native({}, set(), {}, set())
    if len(changes) > 1:
        return None
    for change in changes:
        match change:
            case MergePatch(patch):
                _merge(found, patch, ())
            case Edits():
                if not _edit(found, change):
                    return None
    return found


class Terms:
    """The names and values of an expression, which stands for them by `#0` and `:0`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Attribute] = {}

    def name(self, name: str) -> str:
        """Return what stands for an attribute's name, whichever characters or reserved words are in it."""
        return self._names.setdefault(name, f"#{len(self._names)}")

    def path(self, path: Path) -> str:
        """Return what stands for a path."""
        return ".".join(map(self.name, path))

    def value(self, attribute: Attribute) -> str:
        """Return what stands for a value."""
        stands_for = f":{len(self._values)}"
        self._values[stands_for] = attribute
        return stands_for

    def parameters(self, sets: list[str], removes: list[str], conditions: list[str]) -> Item | None:
        """Return the parameters of a call; None if an expression is longer than DynamoDB takes."""
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
        parameters["ExpressionAttributeNames"] = {stands_for: name for name, stands_for in self._names.items()}
        if self._values:
            parameters["ExpressionAttributeValues"] = self._values
        return parameters


def unchanged(terms: Terms, layout: Layout, seen: Item | None) -> list[str]:
    """Return conditions that an item is still as it was read: its version, and its members up to some size."""
    if seen is None:
        return [f"attribute_not_exists({terms.name(layout.keys[0].name)})"]
    version, deleted = terms.name(VERSION), terms.name(DELETED)
    conditions = [
        f"{version} = {terms.value(seen[VERSION])}" if VERSION in seen else f"attribute_not_exists({version})",
        f"attribute_{'' if DELETED in seen else 'not_'}exists({deleted})",
    ]
    members = layout.members(seen)
    if VERSION not in seen:
        # Nothing else tells that another tool was there: everything that a condition can hold is in it.
        guarded = dict(list(members.items())[:GUARDED_MEMBERS_MAX])
        conditions.append(f"attribute_exists({terms.name(layout.keys[0].name)})")
    else:
        guarded = members if _worth_guarding(members) else {}
    return conditions + [f"{terms.name(name)} = {terms.value(attribute)}" for name, attribute in guarded.items()]


def _worth_guarding(members: Item) -> bool:
    return len(members) <= GUARDED_MEMBERS_MAX and len(msgspec.json.encode(members)) <= GUARDED_BYTES_MAX


def _live(terms: Terms, layout: Layout, now_ms: int) -> Iterator[str]:
    """Yield conditions that there is a record of ours, which does not expire within this second.

    An item that has no version may be no legal value: who updates it has to read it first.
    """
    yield f"attribute_exists({terms.name(VERSION)})"
    yield f"attribute_not_exists({terms.name(DELETED)})"
    ttl, now = terms.name(layout.ttl_attribute), terms.value({"N": str(-(-now_ms // 1000))})
    yield f"(attribute_not_exists({ttl}) OR {ttl} > {now})"


def _merge(found: Native, patch: JsonObject, above: Path) -> None:
    for name, member in patch.items():
        path = (*above, name)
        if member is None:
            found.removes.add(path)
        elif isinstance(member, dict):
            found.objects.add(path)
            _merge(found, member, path)
        else:
            found.sets[path] = member


def _edit(found: Native, change: Edits) -> bool:
    for edit in change.edits:
        match edit.operator:
            case "$set":
                found.sets[edit.path] = edit.operand
            case "$unset":
                found.removes.add(edit.path)
            case "$push":
                found.appends[edit.path] = edit.operand
            case _:
                return False
        found.objects.update(edit.path[:length] for length in range(1, len(edit.path)))
    return True
