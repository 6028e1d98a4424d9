"""Where the jar of the state store is, which is a file of this package."""

from pathlib import Path

JAR = "tableside-state.jar"


class JarNotFound(FileNotFoundError):
    """An installation without the jar of the state store."""


def jar_path() -> str:
    """Return the path of the jar, for `spark.jars`. `JarNotFound` says what to do where there is none."""
    jar = Path(__file__).with_name(JAR)
    if not jar.is_file():
        raise JarNotFound(
            f"the jar of the state store is not in this installation ({jar}), which was built where there was no JDK: "
            "install a wheel that was released, or run scripts/jar in a clone of the project and install from there"
        )
    return str(jar)
