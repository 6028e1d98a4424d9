"""Compile the state store's Java against PySpark's jars, and pack it into the jar that goes with `tableside_spark`.

The same sources and the same compiler give the same bytes. Needs only the standard library, a `javac` and the jars of
an installed PySpark, because the build of a wheel uses it too.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "spark_client" / "state_store"
JAR = ROOT / "spark_client" / "tableside_spark" / "state" / "tableside-state.jar"
VENV = ROOT / ".venv"
TITLE = "Tableside state store for Spark"
RELEASE = 17
MANIFEST = "META-INF/MANIFEST.MF"
DIGEST_LENGTH = 40  # a line of a manifest has at most 72 bytes
TIME = (1980, 1, 1, 0, 0, 0)
LINT = "-Xlint:all,-serial,-processing,-classfile,-path"
"""The disabled warnings concern Spark's jars, or serialization, which the state store does not use."""


class JarError(Exception):
    """The jar cannot be built. The message is shown to the user."""


def ensure_jar(javac: Path | None = None) -> Path:
    """Return the jar. Rebuild it if it is out of date, with this compiler or one that is installed."""
    with _locked():
        if not is_current():
            _replace(javac or _javac_at_hand(), _jars_at_hand())
    return JAR


def is_current(jar: Path = JAR) -> bool:
    """Return whether a jar exists and was built from the current sources."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return f"\r\nSources-Digest: {digest()}\r\n" in archive.read(MANIFEST).decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def sources() -> list[Path]:
    """Return the source files in a fixed order."""
    return sorted(SOURCES.rglob("*.java"))


def digest() -> str:
    """Return a digest of the sources and of this script, independent of the project's location."""
    made_of = hashlib.sha256()
    for file in [*sources(), Path(__file__)]:
        content = file.read_bytes()
        made_of.update(f"{file.relative_to(ROOT).as_posix()}\n{len(content)}\n".encode() + content)
    return made_of.hexdigest()[:DIGEST_LENGTH]


def find_javac() -> Path | None:
    """Return a compiler of a sufficient version: the one in JAVA_HOME, or the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    candidates = [*([Path(home) / "bin" / "javac"] if home else []), Path(shutil.which("javac") or "")]
    return next((javac for javac in candidates if javac.is_file() and _release(javac) >= RELEASE), None)


def find_spark_jars() -> Path | None:
    """Return the folder with PySpark's jars, from the running Python's packages or from `.venv`."""
    found = importlib.util.find_spec("pyspark")
    installed = [Path(place) / "jars" for place in (found.submodule_search_locations or ())] if found else []
    own = sorted(VENV.glob("lib/python3*/site-packages/pyspark/jars"))
    return next((jars for jars in [*installed, *own] if jars.is_dir()), None)


def compile_java(javac: Path, files: Sequence[Path], folder: Path, *classpath: str) -> None:
    """Compile files into a folder. Warnings are errors, except with a newer compiler, which has more warnings."""
    strict = ["-Werror"] if _release(javac) == RELEASE else []
    options = ["--release", str(RELEASE), LINT, *strict, "-proc:none", "-encoding", "UTF-8"]
    command = [str(javac), *options, "-cp", os.pathsep.join(classpath), "-d", str(folder), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command line
    if done.returncode != 0:
        raise JarError(f"failed: {javac} on {len(files)} files\n{done.stdout}{done.stderr}".rstrip())


def pack(folder: Path, made_of: str, jar: Path) -> None:
    """Pack compiled classes, sorted and with a fixed time. The jar is uncompressed: a wheel compresses it anyway."""
    lines = {"Manifest-Version": "1.0", "Implementation-Title": TITLE, "Sources-Digest": made_of}
    manifest = "".join(f"{name}: {text}\r\n" for name, text in lines.items()) + "\r\n"
    classes = sorted(folder.rglob("*.class"))
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_entry(MANIFEST), manifest)
        for file in classes:
            archive.writestr(_entry(file.relative_to(folder).as_posix()), file.read_bytes())


def _replace(javac: Path, jars: Path) -> None:
    """Build the jar in a temporary file and rename it, so that readers find either the old or the new jar."""
    JAR.parent.mkdir(parents=True, exist_ok=True)
    made_of = digest()
    with tempfile.TemporaryDirectory() as temporary:
        compile_java(javac, sources(), Path(temporary), f"{jars}/*")
        with tempfile.NamedTemporaryFile(dir=JAR.parent, prefix=".", suffix=f".{JAR.name}", delete=False) as made:
            unfinished = Path(made.name)
        try:
            pack(Path(temporary), made_of, unfinished)
            unfinished.chmod(0o644)
            unfinished.replace(JAR)
        finally:
            unfinished.unlink(missing_ok=True)


def _javac_at_hand() -> Path:
    if (javac := find_javac()) is None:
        raise JarError(f"no javac of version {RELEASE} or later in JAVA_HOME or on PATH: install a JDK")
    return javac


def _jars_at_hand() -> Path:
    if (jars := find_spark_jars()) is None:
        raise JarError("no PySpark is installed whose jars the state store could be compiled against")
    return jars


def _release(javac: Path) -> int:
    """Return the major version of a compiler, 0 if it is unknown."""
    said = subprocess.run([str(javac), "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r"javac (\d+)", said.stdout + said.stderr)
    return int(match[1]) if match else 0


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, TIME)
    entry.external_attr = 0o100644 << 16
    entry.create_system = 3
    return entry


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Keep other processes from building the jar at the same time."""
    folder = os.open(SOURCES, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def make_if_possible() -> None:
    """Build the jar if the tools for it are installed. Otherwise, print a message once."""
    if is_current():
        return
    stamp, wanted = VENV / "jar.stamp", digest()
    if find_javac() is None:
        if not (stamp.exists() and stamp.read_text() == wanted):
            say(f"no javac {RELEASE} or later: the jar for Spark's state is not built (scripts/jar does it)")
            stamp.write_text(wanted)
        return
    say("compiling the state store …")
    try:
        ensure_jar()
    except JarError as problem:
        say(f"the jar for Spark's state is not built: {problem}")


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"[setup] {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Build the jar. Install Debian's compiler if there is none."""
    parser = argparse.ArgumentParser(description="Build the jar of the state store, if it is missing or out of date.")
    parser.add_argument("--if-possible", action="store_true", help="install nothing, and without a compiler do nothing")
    if parser.parse_args().if_possible:
        make_if_possible()
        return
    from servers.jdk import ensure_javac  # not available when a wheel is built

    print(ensure_jar(None if is_current() else ensure_javac()))


if __name__ == "__main__":
    try:
        main()
    except (JarError, RuntimeError) as problem:
        sys.exit(f"jar: {problem}")
