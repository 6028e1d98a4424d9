"""Every configuration on a page is valid. If a block is a part of one, the test adds the stores that it names."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from documentation.blocks import Block
from documentation.claims import CONFIGURED, claimed
from tableside.settings import validate

SECRET_FILES = "tokens.yaml"
ENVIRONMENT = {"ORDERS_DSN": "postgresql://127.0.0.1/orders"}


@pytest.mark.parametrize("block", claimed(CONFIGURED), ids=str)
def test_a_configuration_has_no_faults(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / SECRET_FILES).write_text("[]\n")
    validate(completed(yaml.safe_load(block.text)), ENVIRONMENT)


def completed(part: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with this part, and with the stores that its tables name."""
    named = {table["store"] for table in part.get("tables", {}).values()}
    return {"stores": {name: {"kind": "memory"} for name in named or {"local"}}, **part}
