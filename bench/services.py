"""Run a service whose tables are all in one store."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml
from examples.demo.service import Service, running

from .cases import Case

Tables = Mapping[str, Mapping[str, Any]]
"""The settings of tables by name, without the store."""


def serving(
    folder: Path,
    store: Mapping[str, Any],
    tables: Tables,
    *,
    workers: int = 1,
    environment: Mapping[str, str] | None = None,
) -> AbstractContextManager[Service]:
    """Run a service with its files in a new folder."""
    folder.mkdir()
    config = {
        "stores": {"measured": dict(store)},
        "tables": {name: {"store": "measured", "create": True, **settings} for name, settings in tables.items()},
    }
    file = folder / "tableside.yaml"
    file.write_text(yaml.safe_dump(config))
    return running(folder, config=file, workers=workers, environment=environment)


def tables_of(cases: Iterable[Case]) -> Tables:
    """Return a table for each case."""
    return {case.table: case.settings for case in cases}
