"""Replaces `${NAME}` in the texts of a configuration by environment variables."""

import re
from collections.abc import Mapping

from .faults import Fault

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MALFORMED = re.compile(rf"(?!{_VARIABLE.pattern})\$\{{([A-Za-z0-9_]*)([^${{}}]*\}})?")


def expand_variables(data: object, environment: Mapping[str, str], path: str, faults: list[Fault]) -> object:
    """Return the data with `${NAME}` replaced in every string.

    Add a fault for each variable that is malformed or not set.
    """
    if isinstance(data, dict):
        below = f"{path}." if path else ""
        return {
            str(name): expand_variables(value, environment, f"{below}{name}", faults) for name, value in data.items()
        }
    if isinstance(data, list):
        return [expand_variables(value, environment, f"{path}.{index}", faults) for index, value in enumerate(data)]
    if not isinstance(data, str) or "${" not in data:
        return data
    faults.extend(Fault(path, _malformed(match)) for match in _MALFORMED.finditer(data))
    missing = [name for name in _VARIABLE.findall(data) if name not in environment]
    faults.extend(Fault(path, f"the environment variable {name} is not set") for name in missing)
    return _VARIABLE.sub(lambda match: environment.get(match[1], match[0]), data)


def _malformed(match: re.Match[str]) -> str:
    """Return the message for a malformed variable. It omits what follows the name: a default may be a secret."""
    _, name, rest = match.groups()
    if rest is None:
        return "a ${ has no }: write ${NAME}"
    return f"'${{{name}{'…' if rest != '}' else ''}}}' is not a variable: write ${{NAME}}"
