"""Turns YAML into data: within limits, with text as names, and with the path of every fault.

It reads the parser's events. The composer of libyaml is recursive: deeply nested text crashes the process.
"""

from typing import Any, NamedTuple

import yaml

from .faults import Fault, SettingsError

NODES_MAX = 1_000_000
"""Maximum number of values in a file. An alias counts as all the values that it repeats."""

DEPTH_MAX = 32
"""Maximum depth of nested mappings and lists, with aliases replaced by their values."""

NUMBER_LENGTH_MAX = 100
"""Maximum length of a number or date. Longer ones can take quadratic time."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
# YAML 1.1 gives a plain `=` the type "value". Helm writes the text "=" that way.
_TEXT = frozenset({f"{_TAG}str", f"{_TAG}value"})
_MERGE = f"{_TAG}merge"
_KINDS = {
    f"{_TAG}bool": "a boolean",
    f"{_TAG}float": "a number",
    f"{_TAG}int": "a number",
    f"{_TAG}null": "null",
    f"{_TAG}timestamp": "a date",
}
_NOT_TEXT = "has a YAML tag that is not supported; a text that begins with ! needs quotes"


class _Anchor(NamedTuple):
    """The value of an anchor, the number of values in it, and its depth."""

    value: Any
    nodes: int
    depth: int


class YamlReader:
    """Reads one document. Adds faults to `faults` and continues, as far as the text can still be understood."""

    def __init__(self, text: str, path: str, faults: list[Fault]) -> None:
        self._loader = _Loader(text)
        self._event = self._loader.get_event
        self._root = path
        self._faults = faults
        self._anchors: dict[str, _Anchor | None] = {}
        self._tags: dict[tuple[str, tuple[bool, bool]], str] = {}
        self._nodes = 0
        self._deepest = 0

    def document(self) -> Any:
        """Return the document's data, or None if there is none.

        Raise SettingsError if the data exceed a limit or contain themselves, and YAMLError if the text is not YAML.
        """
        self._event()
        if isinstance(self._event(), yaml.StreamEndEvent):
            return None
        data = self._value(self._event(), self._root, 1)
        self._event()
        if not isinstance(self._event(), yaml.StreamEndEvent):
            self._add(self._root, "has more than one YAML document")
        return data

    def _value(self, event: Any, path: str, depth: int) -> Any:
        """Return the value that begins with an event."""
        if type(event) is yaml.AliasEvent:
            return self._alias(event, path, depth)
        self._count(1, depth, path)
        if event.anchor is None:
            return self._unnamed(event, path, depth)
        nodes, deepest = self._nodes, self._deepest
        self._anchors[event.anchor], self._deepest = None, depth
        value = self._unnamed(event, path, depth)
        self._anchors[event.anchor] = _Anchor(value, self._nodes - nodes + 1, self._deepest - depth)
        self._deepest = max(self._deepest, deepest)
        return value

    def _unnamed(self, event: Any, path: str, depth: int) -> Any:
        """Return the value that begins with an event, without its anchor."""
        if type(event) is yaml.ScalarEvent:
            return self._scalar(event, path)
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self._add(path, _NOT_TEXT)
        return self._mapping(path, depth) if type(event) is yaml.MappingStartEvent else self._list(path, depth)

    def _alias(self, event: Any, path: str, depth: int) -> Any:
        """Return the value of an alias. Does not quote its name: it may be a password that begins with `*`."""
        if event.anchor not in self._anchors:
            self._add(path, "is an alias without an anchor; a text that begins with * needs quotes")
            return None
        anchor = self._anchors[event.anchor]
        if anchor is None:
            raise self._refusal(path, "is an alias of a value that contains it")
        self._count(anchor.nodes, depth + anchor.depth, path)
        return anchor.value

    def _count(self, nodes: int, depth: int, path: str) -> None:
        """Count values, and check that they are within the limits."""
        self._nodes += nodes
        self._deepest = max(self._deepest, depth)
        if self._nodes > NODES_MAX:
            raise self._refusal(path, f"here the file exceeds {NODES_MAX:,} values, with aliases counted in full")
        if depth > DEPTH_MAX:
            raise self._refusal(path, f"is nested deeper than {DEPTH_MAX} levels")

    def _list(self, path: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while type(event := self._event()) is not yaml.SequenceEndEvent:
            values.append(self._value(event, _below(path, len(values)), depth + 1))
        return values

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        own, merged = dict[str, Any](), dict[str, Any]()
        lines: dict[str, int] = {}
        while type(event := self._event()) is not yaml.MappingEndEvent:
            name, merges = self._name(event, path)
            member, line = _below(path, name), event.start_mark.line + 1
            if (first := lines.setdefault(name, line)) != line or name in own:
                self._add(member, f"is given twice, in {f'lines {first} and' if first != line else 'line'} {line}")
            value = self._value(self._event(), member, depth + 1)
            if merges:
                merged = self._merged(value, member)
            else:
                own[name] = value
        return {**merged, **own} if merged else own

    def _name(self, event: Any, path: str) -> tuple[str, bool]:
        """Return the name of a member, and whether it is the merge key `<<`."""
        if type(event) is not yaml.ScalarEvent:
            raise self._refusal(path, f"has a name in line {event.start_mark.line + 1} that is not a text")
        tag = self._tag(event)
        if tag not in _TEXT and tag != _MERGE:
            why = f"YAML reads this name as {_KINDS[tag]}: quote it" if tag in _KINDS else _NOT_TEXT
            self._add(_below(path, event.value), why)
        return event.value, tag == _MERGE

    def _merged(self, value: Any, path: str) -> dict[str, Any]:
        """Return the members that a merge key adds. In a list of mappings, the first takes precedence."""
        merged: dict[str, Any] = {}
        for source in reversed(value) if isinstance(value, list) else [value]:
            if isinstance(source, dict):
                merged |= source
            else:
                self._add(path, "is not a mapping or a list of mappings")
        return merged

    def _scalar(self, event: Any, path: str) -> Any:
        tag = self._tag(event)
        if tag in _TEXT:
            return event.value
        if tag not in _KINDS:
            self._add(path, _NOT_TEXT)
            return None
        try:
            if len(event.value) > NUMBER_LENGTH_MAX:
                raise ValueError
            return self._loader.yaml_constructors[tag](self._loader, yaml.ScalarNode(tag, event.value))
        except (ArithmeticError, AttributeError, LookupError, ValueError):  # PyYAML's, such as for an impossible date
            self._add(path, f"cannot be read as {_KINDS[tag]}; a text needs quotes")
            return None

    def _tag(self, event: Any) -> str:
        """Return the type of a scalar: given by a tag, or else found by YAML's rules."""
        if event.tag is not None and event.tag != "!":
            return str(event.tag)
        text = (event.value, event.implicit)
        if text not in self._tags:
            self._tags[text] = self._loader.resolve(yaml.ScalarNode, *text)
        return self._tags[text]

    def _add(self, path: str, message: str) -> None:
        self._faults.append(Fault(path, message))

    def _refusal(self, path: str, message: str) -> SettingsError:
        return SettingsError([*self._faults, Fault(path, message)])


def _below(path: str, name: str | int) -> str:
    return f"{path}.{name}" if path else str(name)
