"""A Java compiler."""

from pathlib import Path

from scripts.state_jar import find_javac

from .install import ensure_command


def ensure_javac() -> Path:
    """Return a `javac` of a sufficient version. Install Debian's if there is none."""
    return find_javac() or ensure_command("javac", "default-jdk-headless")
