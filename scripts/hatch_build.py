"""Puts the jar of the state store into what is built: made of this tree's sources, or the one that came with them.

Where it cannot be made, what is built goes without it, unless `TABLESIDE_STATE_JAR=required` is in the environment.
"""

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StateJar(BuildHookInterface[BuilderConfig]):
    """The hook of sdist and wheel. An editable installation has the jar of its tree, or none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the jar made, and named among what is built although git ignores it."""
        if version == "editable":
            return
        state_jar = _loaded(Path(self.root) / "scripts" / "state_jar.py")
        try:
            jar: Path = state_jar.ensure_jar()
        except (state_jar.JarError, OSError) as problem:
            if os.environ.get("TABLESIDE_STATE_JAR") == "required":
                raise
            self.app.display_warning(f"built without the jar of the state store: {problem}")
        else:
            build_data["artifacts"].append(f"/{jar.relative_to(self.root).as_posix()}")


def _loaded(file: Path) -> ModuleType:
    """Return a module of this tree, of whatever place the build is run in."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
