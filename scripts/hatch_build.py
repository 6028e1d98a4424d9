"""Add the jar of the state store to the sdist and the wheel: built from the tree's sources, or the jar of an sdist.

If it cannot be built, the distribution does not contain it. With `TABLESIDE_STATE_JAR=required` the build fails.
"""

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StateJar(BuildHookInterface[BuilderConfig]):
    """The build hook of sdist and wheel. An editable installation uses the jar in its tree, if there is one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the jar, and add it to the artifacts because git ignores it."""
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
    """Load a module from this tree. The working directory of the build does not matter."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
