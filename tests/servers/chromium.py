"""Chromium, as Debian packages it, for tests that look at a page as people do. Knows nothing of what drives it."""

from pathlib import Path

from .install import ensure_command, ensure_library

ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""What it is started with, so that it asks nobody for anything by itself."""


def chromium() -> Path:
    """Return the program. There is then also the library that playwright's own program needs."""
    ensure_library("libatomic.so.1", "libatomic1")
    return ensure_command("chromium", "chromium")
