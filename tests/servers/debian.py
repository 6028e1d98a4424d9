"""A minimal Debian with Python, made of Debian's packages: a base to build images on where none can be fetched."""

import subprocess
import tempfile
from pathlib import Path

from scripts.bootstrap import step

from .install import ensure_command, ensure_folder

RELEASE = "bookworm"
PACKAGES = ("libstdc++6", "python3", "python3-venv")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")


def debian_with_python() -> Path:
    """Return the archive of its files. It is made once, and then kept."""
    return ensure_folder("debian", (Path(__file__),), _make) / "files.tar"


def _make(folder: Path) -> None:
    make = [str(ensure_command("mmdebstrap", "mmdebstrap")), "--mode=root", "--variant=essential"]
    fewer = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as reach:
        reach.write(_asked("apt-config", "dump", "--no-empty", "--format", '%F "%v";%n', "Acquire"))
        reach.flush()
        as_here = [f"--aptopt={reach.name}", "--dpkgopt=force-unsafe-io"]
        what = [f"--include={','.join(PACKAGES)}", RELEASE, str(folder / "files.tar")]
        step("making a minimal Debian", [*make, *fewer, *as_here, *what, *_mirrors()])


def _mirrors() -> list[str]:
    """Return where this machine takes Debian's packages from: one place, or none, which is then Debian's own."""
    asked = ["Created-By: Packages", "Origin: Debian", f"Codename: {RELEASE}", "Component: main"]
    places = _asked("apt-get", "indextargets", "--format", "$(REPO_URI)", *asked).split()
    return places[:1]


def _asked(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
