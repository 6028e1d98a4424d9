"""Reads configuration files: YAML of limited size and depth, with text as names, and with the path of every fault."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from .faults import Fault, Faults, SettingsError

FILE_BYTES_MAX = 16 * 2**20
"""Maximum size of a configuration file, and of a file with tokens."""

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
_COLLECTIONS = frozenset({f"{_TAG}map", f"{_TAG}seq"})
_KINDS = {
    f"{_TAG}bool": "a boolean",
    f"{_TAG}float": "a number",
    f"{_TAG}int": "a number",
    f"{_TAG}null": "null",
    f"{_TAG}timestamp": "a date",
}
_NOT_TEXT = "has a YAML tag that is not supported; a text that begins with ! needs quotes"


def read_text(file: str | Path, path: str = "") -> str:
    """Return the text of a file. Raise SettingsError, with a fault at `path`, if it cannot be read or is too large."""
    try:
        # A named pipe without a writer is empty, and does not block.
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            os.set_blocking(opened.fileno(), True)
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"it is larger than {FILE_BYTES_MAX} bytes")
        return content.decode()
    except (OSError, ValueError) as error:  # a ValueError also for a path with U+0000
        raise SettingsError([Fault(path, f"{file} cannot be read: {error}")]) from None


def parse_yaml(text: str, path: str, faults: Faults) -> Any:
    """Return the data in a text, and add their faults, below `path`, to `faults`.

    Raise SettingsError if the text is not YAML or exceeds a limit.
    """
    try:
        _check_depth(text, path)
        root = yaml.compose(text, _Loader)
        return None if root is None else _YamlReader(faults).value(root, path, 1)
    except yaml.YAMLError as error:
        raise SettingsError([*faults.found, Fault(path, f"the file is not YAML: {_yaml_problem(error)}")]) from None
    except SettingsError as error:
        raise SettingsError([*faults.found, *error.faults]) from None


def _check_depth(text: str, path: str) -> None:
    """Check the depth before nodes are composed: libyaml does that recursively, and deep text crashes the process."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            line = event.start_mark.line + 1 if event.start_mark else None
            raise SettingsError([Fault(path, f"line {line} is nested deeper than {DEPTH_MAX} levels")])


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Return the problem and its position in one line, without quoting the file, which may contain secrets."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = _QUOTED_NAME.sub(r"\1", error.problem or "")
        return f"line {mark.line + 1}, column {mark.column + 1}: {_PROBLEMS.get(problem, problem)}"
    return " ".join(str(error).split())


_QUOTED_NAME = re.compile(r"\b(alias|anchor|the tag|tag handle) .*", re.DOTALL)
"""Text that PyYAML quotes if it takes a value for an alias or a tag, such as a password that begins with `*` or `!`."""

_PROBLEMS = {
    "found undefined alias": "found undefined alias; a text that begins with * needs quotes",
    "but found another document": "there is more than one YAML document",
}


class _YamlReader:
    """Turns nodes into data. Adds faults and continues, as far as the text can still be understood."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._constructor = SafeConstructor()
        self._nodes = 0

    def value(self, node: yaml.Node, path: str, depth: int) -> Any:
        """Return the value of a node. Raise SettingsError if the data exceed a limit or contain themselves."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            message = f"here the file exceeds {NODES_MAX:,} values, with aliases counted in full"
            raise SettingsError([Fault(path, message)])
        if depth > DEPTH_MAX:
            raise SettingsError([Fault(path, f"is nested deeper than {DEPTH_MAX} levels")])
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in _COLLECTIONS:
            self._faults.add(path, _NOT_TEXT)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        return [self.value(each, _below(path, index), depth + 1) for index, each in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        own, merged = dict[str, Any](), dict[str, Any]()
        lines: dict[str, int] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            if not isinstance(name_node, yaml.ScalarNode):
                raise SettingsError([Fault(path, f"has a name in line {line} that is not a text")])
            name, tag = str(name_node.value), name_node.tag
            member = _below(path, name)
            if tag not in _TEXT and tag != _MERGE:
                why = f"YAML reads this name as {_KINDS[tag]}: quote it" if tag in _KINDS else _NOT_TEXT
                self._faults.add(member, why)
            if (first := lines.setdefault(name, line)) != line or name in own:
                self._faults.add(
                    member, f"is given twice, in {f'lines {first} and' if first != line else 'line'} {line}"
                )
            value = self.value(value_node, member, depth + 1)
            if tag != _MERGE:
                own[name] = value
                continue
            for source in reversed(value) if isinstance(value, list) else [value]:  # the first takes precedence
                if isinstance(source, dict):
                    merged |= source
                else:
                    self._faults.add(member, "is not a mapping or a list of mappings")
        return {**merged, **own} if merged else own

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        if node.tag in _TEXT:
            return node.value
        if node.tag not in _KINDS:
            self._faults.add(path, _NOT_TEXT)
            return None
        try:
            if len(node.value) > NUMBER_LENGTH_MAX:
                raise ValueError
            return self._constructor.construct_object(node)
        except (ArithmeticError, AttributeError, LookupError, ValueError):  # PyYAML's, such as for an impossible date
            self._faults.add(path, f"cannot be read as {_KINDS[node.tag]}; a text needs quotes")
            return None


def _below(path: str, name: str | int) -> str:
    return f"{path}.{name}" if path else str(name)


def expand_variables(data: object, environment: Mapping[str, str], path: str, faults: Faults) -> object:
    """Return the data with `${NAME}` replaced by environment variables in every string.

    Add a fault for each variable that is malformed or not set.
    """
    if isinstance(data, dict):
        return {
            str(name): expand_variables(value, environment, _below(path, name), faults) for name, value in data.items()
        }
    if isinstance(data, list):
        return [expand_variables(value, environment, f"{path}.{index}", faults) for index, value in enumerate(data)]
    if not isinstance(data, str) or "${" not in data:
        return data
    for _, name, rest in _MALFORMED.findall(data):
        # The message omits what follows the name: a default may be a secret.
        wrong = f"'${{{name}{'…' if rest != '}' else ''}}}' is not a variable: write ${{NAME}}"
        faults.add(path, wrong if rest else "a ${ has no }: write ${NAME}")
    for name in _VARIABLE.findall(data):
        if name not in environment:
            faults.add(path, f"the environment variable {name} is not set")
    return _VARIABLE.sub(lambda match: environment.get(match[1], match[0]), data)


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MALFORMED = re.compile(rf"(?!{_VARIABLE.pattern})\$\{{([A-Za-z0-9_]*)([^${{}}]*\}})?")
