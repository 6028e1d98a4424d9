"""Reads configuration files: YAML without duplicate members, in which `${NAME}` is an environment variable."""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from .faults import Fault, SettingsError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def read_yaml(file: str | Path, path: str) -> Any:
    """Return the data in a YAML file. Raise SettingsError, with a fault at `path`, if the file cannot be read."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        return yaml.load(text, _UniqueLoader)  # noqa: S506  # a subclass of the safe loader
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([Fault(path, f"{file} cannot be read: {error}")]) from None
    except yaml.YAMLError as error:
        raise SettingsError([Fault(path, f"{file} is not YAML: {_yaml_problem(error)}")]) from None
    except (ValueError, RecursionError):  # such as an impossible date, or too deeply nested mappings
        raise SettingsError(
            [Fault(path, f"{file} has a value that cannot be read, such as an impossible date")]
        ) from None


class _UniqueLoader(yaml.SafeLoader):
    """A safe YAML loader that rejects mappings with duplicate members."""

    # YAML 1.1 gives a plain `=` a type of its own, which PyYAML cannot construct. Helm writes the text "=" that way.
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **yaml.SafeLoader.yaml_constructors,
        "tag:yaml.org,2002:value": yaml.SafeLoader.construct_yaml_str,
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Return the problem and its position in one line, without quoting the file, which may contain secrets."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = _QUOTED_NAME.sub(r"\1", error.problem or "")
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    return " ".join(str(error).split())


_QUOTED_NAME = re.compile(r"\b(alias|anchor|the tag|tag handle) .*", re.DOTALL)
"""Text that PyYAML quotes if it takes a value for an alias or a tag, such as a password that begins with `*` or `!`."""


def expand_variables(data: object, environment: Mapping[str, str], path: str, faults: list[Fault]) -> object:
    """Return the data with `${NAME}` replaced in every string. Add a fault for each variable that is not set."""
    if isinstance(data, dict):
        return {
            str(name): expand_variables(member, environment, f"{path}.{name}".strip("."), faults)
            for name, member in data.items()
        }
    if isinstance(data, list):
        return [expand_variables(member, environment, f"{path}.{index}", faults) for index, member in enumerate(data)]
    if not isinstance(data, str):
        return data
    missing = [name for name in _VARIABLE.findall(data) if name not in environment]
    faults.extend(Fault(path, f"the environment variable {name} is not set") for name in missing)
    return _VARIABLE.sub(lambda match: environment.get(match[1], match[0]), data)
