"""A compiler for Java. Knows nothing of what is compiled."""

from pathlib import Path

from scripts.state_jar import find_javac

from .install import ensure_command


def ensure_javac() -> Path:
    """Return a `javac` that is new enough. If there is none, Debian's is installed."""
    return find_javac() or ensure_command("javac", "default-jdk-headless")
