"""The path of the state store's jar, which is a file of this package."""

from pathlib import Path

JAR = "tableside-state.jar"


class JarNotFound(FileNotFoundError):
    """The installation does not contain the jar of the state store."""


def jar_path() -> str:
    """Return the path of the jar, for `spark.jars`. Raises `JarNotFound`, with instructions, if there is none."""
    jar = Path(__file__).with_name(JAR)
    if not jar.is_file():
        raise JarNotFound(
            f"the jar of the state store is not in this installation ({jar}), because it was built without a JDK: "
            "install a released wheel, or run scripts/jar in a clone of the project and install from there"
        )
    return str(jar)
