"""A minimal Debian with Python, made from Debian packages: the base image if no registry is reachable."""

import subprocess
import tempfile
from pathlib import Path

from scripts.bootstrap import step

from .install import ensure_command, ensure_folder

RELEASE = "bookworm"
PACKAGES = ("libstdc++6", "python3", "python3-venv")
EXCLUDED = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")


def debian_with_python() -> Path:
    """Return the archive of its files, which is created once and then kept."""
    return ensure_folder("debian", (Path(__file__),), _make) / "files.tar"


def _make(folder: Path) -> None:
    make = [str(ensure_command("mmdebstrap", "mmdebstrap")), "--mode=root", "--variant=essential"]
    exclusions = [f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED]
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as settings:
        settings.write(_output("apt-config", "dump", "--no-empty", "--format", '%F "%v";%n', "Acquire"))
        settings.flush()
        options = [f"--aptopt={settings.name}", "--dpkgopt=force-unsafe-io"]
        target = [f"--include={','.join(PACKAGES)}", RELEASE, str(folder / "files.tar")]
        step("making a minimal Debian", [*make, *exclusions, *options, *target, *_mirrors()])


def _mirrors() -> list[str]:
    """Return the Debian mirror of this machine, or nothing for Debian's default mirror."""
    filters = ["Created-By: Packages", "Origin: Debian", f"Codename: {RELEASE}", "Component: main"]
    mirrors = _output("apt-get", "indextargets", "--format", "$(REPO_URI)", *filters).split()
    return mirrors[:1]


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
