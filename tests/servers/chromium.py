"""Debian's Chromium, for tests that render pages."""

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
"""Command line options that keep Chromium from making requests that no page causes."""


def chromium() -> Path:
    """Return the program's path. Also install a library that playwright's driver needs."""
    ensure_library("libatomic.so.1", "libatomic1")
    return ensure_command("chromium", "chromium")
