"""Say what an extra of a wheel installs, as a bill of materials: CycloneDX, in JSON.

It is read from the metadata of the packages of this environment, which are the locked ones: nothing is downloaded. What
is for another Python or platform than this is not in it.
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .bootstrap import SetupError
from .distributions import wheel_metadata

SCHEMA = SchemaVersion.V1_6


def bill(wheel: Path, extra: str, locked: str, environment: Mapping[str, str]) -> str:
    """Return the bill of `wheel[extra]`; refuse to describe a package that is here in another version than `locked`."""
    with tempfile.TemporaryDirectory() as temporary:
        described = document(view(Path(temporary), wheel, extra), environment)
    root = take_root(described)
    if wrong := unlocked(described, locked):
        raise SetupError(f"not installed as locked: {', '.join(sorted(wrong))}")
    described["metadata"]["component"] = root
    described["metadata"].setdefault("properties", []).extend(properties(extra))
    text = json.dumps(without_addresses(described), indent=2) + "\n"
    if problem := JsonStrictValidator(SCHEMA).validate_str(text):
        raise SetupError(f"no valid bill of materials: {problem}")
    return text


def view(folder: Path, wheel: Path, extra: str) -> Path:
    """Make an environment that holds the metadata of what an extra installs, and nothing else; return its Python."""
    venv.create(folder, symlinks=True, with_pip=False)
    [site] = folder.glob("lib/python*/site-packages")
    put_metadata(site, "tableside", wheel_metadata(wheel).decode())
    [root] = distributions(path=[str(site)])
    for name, found in installed_by(root, extra).items():
        if found is not root:
            put_metadata(site, name, found.read_text("METADATA") or "")
    return folder / "bin" / "python"


def put_metadata(site: Path, name: str, text: str) -> None:
    """Write what a package says of itself to where installed packages have it."""
    folder = site / f"{name}-0.dist-info"  # the version that counts stands in the text
    folder.mkdir()
    (folder / "METADATA").write_text(text)


def installed_by(root: Distribution, extra: str) -> dict[str, Distribution]:
    """Return what a distribution with an extra installs on this Python and platform, itself included."""
    found = {canonicalize_name(root.name): root}
    todo, done = {(canonicalize_name(root.name), extra), (canonicalize_name(root.name), "")}, set()
    while todo:
        name, wanted = current = todo.pop()
        done.add(current)
        if name not in found:
            found[name] = distribution(name)
        for requirement in map(Requirement, found[name].requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                todo |= {(canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)} - done
    return {str(name): package for name, package in found.items()}


def document(python: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Describe the packages of a Python, with their licences and who needs whom."""
    # What is left of it in the end is checked in the end: here that would take ten times as long as all the rest.
    options = [
        "--output-reproducible",
        "--no-validate",
        "--gather-license-texts",
        "--spec-version",
        SCHEMA.to_version(),
    ]
    command = [sys.executable, "-m", "cyclonedx_py", "environment", *options, str(python)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise SetupError(f"no bill of materials: {done.stderr}")
    described: dict[str, Any] = json.loads(done.stdout)
    return described


def take_root(described: dict[str, Any]) -> dict[str, Any]:
    """Take the component that all the others are there for out of the list."""
    [root] = [component for component in described["components"] if component["name"] == "tableside"]
    described["components"].remove(root)
    return {**root, "type": "application"}


def unlocked(described: dict[str, Any], locked: str) -> set[str]:
    """Return what has another version than those that are locked."""
    pins = set(re.findall(r"(?m)^([a-z0-9-]+==[^ ;\\]+)", locked))
    return {f"{canonicalize_name(part['name'])}=={part['version']}" for part in described["components"]} - pins


def properties(extra: str) -> list[dict[str, str]]:
    """Say for what the bill was made: markers of requirements depend on it."""
    version = ".".join(platform.python_version_tuple()[:2])
    about = {"extra": extra, "platform": f"{sys.platform}-{platform.machine()}", "python": version}
    return [{"name": f"tableside:{name}", "value": value} for name, value in about.items()]


def without_addresses(part: Any) -> Any:
    """Leave out where each package has its pages: what a bill is compared by is names, versions and licences."""
    if isinstance(part, list):
        return [without_addresses(each) for each in part]
    if isinstance(part, dict):
        return {name: without_addresses(each) for name, each in part.items() if name != "externalReferences"}
    return part
