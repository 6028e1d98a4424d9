"""Generate the table of values in the chart's README from values.yaml and its schema. Run it to update the README."""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from deploy.chart.rendering import CHART, Values

README = CHART / "README.md"
BEGIN, END = "<!-- the values -->\n", "<!-- the end of the values -->\n"

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

NOT_OURS = {"global", "enabled"}
"""Values that Helm itself may add. They have no default."""

Path = tuple[str, ...]


def described(node: dict[str, Any] = SCHEMA, at: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the path and schema of every value. A mapping whose members are declared yields these members instead."""
    for name, one in node["properties"].items():
        if not at and name in NOT_OURS:
            continue
        if one.get("additionalProperties") is False and one.get("properties"):
            yield from described(one, (*at, name))
        else:
            yield (*at, name), one


def default(path: Path) -> Any:
    """Return the default of a value."""
    value: Any = DEFAULTS
    for name in path:
        value = value[name]
    return value


def table() -> str:
    """Return the table."""
    rows = [f"| `{'.'.join(path)}` | {_shown(default(path))} | {one['description']} |" for path, one in described()]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows]) + "\n"


def written() -> str:
    """Return the current table in the README."""
    return README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > 60:
        return "see `values.yaml`"
    return f"`{text}`"


if __name__ == "__main__":
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
