"""A configuration file: YAML in which no member stands twice, and `${NAME}` is an environment variable."""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from .faults import Fault, SettingsError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def read_yaml(file: str | Path, path: str) -> Any:
    """Return the data in a YAML file. Raise SettingsError, with that path, if there is none that can be read."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        return yaml.load(text, _UniqueLoader)  # noqa: S506  # a subclass of the safe loader
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([Fault(path, f"{file} cannot be read: {error}")]) from None
    except yaml.YAMLError as error:
        raise SettingsError([Fault(path, f"{file} is not YAML: {_yaml_problem(error)}")]) from None
    except (ValueError, RecursionError):  # a date that there is not, say; or mappings in mappings without end
        raise SettingsError(
            [Fault(path, f"{file} has a value that cannot be read, such as a date that there is not")]
        ) from None


class _UniqueLoader(yaml.SafeLoader):
    """Reads YAML, and refuses a mapping that names a member twice."""

    # YAML 1.1 gives a plain `=` a type of its own, which PyYAML cannot construct. Helm writes the text "=" that way.
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **yaml.SafeLoader.yaml_constructors,
        "tag:yaml.org,2002:value": yaml.SafeLoader.construct_yaml_str,
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Say in one line what is wrong and where, and nothing of what stands there."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = _QUOTED_NAME.sub(r"\1", error.problem or "")
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    return " ".join(str(error).split())


_QUOTED_NAME = re.compile(r"\b(alias|anchor|the tag|tag handle) .*", re.DOTALL)
"""What is named where text is taken for YAML's own: a password without quotes may begin with `*` or `!`."""


def expand_variables(data: object, environment: Mapping[str, str], path: str, faults: list[Fault]) -> object:
    """Return the data with `${NAME}` replaced in every text."""
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
