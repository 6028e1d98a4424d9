"""Build the image from this tree, on a minimal Debian with Python instead of the base image from a registry."""

import ast
import contextlib
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bootstrap import ROOT
from scripts.state_jar import ensure_jar
from servers.buildah import Builder, builder
from servers.container import Image
from servers.debian import debian_with_python
from servers.jdk import ensure_javac

BASE = "localhost/base"
NAME = "localhost/tableside"
ARGUMENTS = {
    "BASE": BASE,
    "VERSION": "1.2.3",
    "REVISION": "abcdef0123456789",
    "SOURCE": "https://example.org/tableside",
}
NETWORK_SETTINGS = {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries"}
"""The settings of pip that determine how it reaches packages."""


@dataclass(frozen=True)
class Built:
    """The image, and the archive with its base."""

    builder: Builder
    image: Image
    base: Path
    canary: str
    """A text in every secret of the build, which must not be in the image."""


@contextlib.contextmanager
def built(scratch: Path) -> Iterator[Built]:
    """Build the image, and yield it unpacked."""
    canary = f"canary-{secrets.token_hex(16)}"
    base = debian_with_python()
    with builder() as images:
        images.load(BASE, base)
        images.build(NAME, _copied(scratch / "context"), arguments=ARGUMENTS, secrets=dict(_secrets(scratch, canary)))
        with images.unpacked(NAME) as root:
            yield Built(images, Image(root, images.described(NAME)["config"]), base, canary)


def _copied(context: Path) -> Path:
    """Copy the build context: the tree may change while the tests run."""
    ensure_jar(ensure_javac())
    sent = re.findall(r"(?m)^!(.+)$", (ROOT / ".dockerignore").read_text())
    context.mkdir()
    for name in ["Dockerfile", ".dockerignore", *sent]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (context / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, context / name)
    return context


def _secrets(folder: Path, canary: str) -> Iterator[tuple[str, Path]]:
    """Yield secrets with the package settings of this machine. Each contains the canary."""
    settings = _pip_settings()
    options = "".join(f"{name} = {value}\n" for name, value in settings.items() if name in NETWORK_SETTINGS)
    yield "pip.conf", _written(folder / "pip.conf", f"# {canary}\n[global]\n{options}")
    if authorities := settings.get("cert"):
        yield "ca.pem", _written(folder / "ca.pem", f"{canary}\n{Path(authorities).read_text()}")


def _pip_settings() -> dict[str, str]:
    """Return the settings of pip on this machine, from its files and from the environment."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: str(ast.literal_eval(value)) for name, value in re.findall(r"(?m)^[^=]*\.([\w-]+)=(.*)$", listed)}


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file
